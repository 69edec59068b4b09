"""The base of all config models, and fields whose keys depend on a registered class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, field_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ludus.registry import Registry, UnknownName


class Model(BaseModel):
    """A frozen model that refuses unknown keys; the docstring under a field is its documentation."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def true_is_no_number(cls, value: object, validate: core_schema.ValidatorFunctionWrapHandler) -> object:
        """Refuse `true` for a number: Python would read it as 1."""
        found = validate(value)
        if isinstance(value, bool) and type(found) in (int, float):
            raise ValueError(f"must be a number, not {str(value).lower()}")
        return found


@dataclass(frozen=True)
class Registered:
    """Annotation of a field that holds the `Config` of a registered class, chosen by the value under `key`.

    A bare string is short for `{key: string}`. The dumped value contains the name, so that it can be loaded again.
    """

    registry: Registry[Any]
    key: str = "type"
    default: str | None = None
    """The name if `key` is missing."""
    parts: bool = False
    """Whether a mapping under another key is the choice for the part with that name."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.parse, serialization=core_schema.plain_serializer_function_ser_schema(self.dump)
        )

    def parse(self, value: object) -> Choice:
        """The choice that a string or a mapping means."""
        if isinstance(value, Choice):
            return value
        if isinstance(value, str):
            value = {self.key: value}
        if not isinstance(value, dict):
            raise PydanticCustomError("choice_type", "expected a mapping with a '{key}'", {"key": self.key})
        parts = {str(k): v for k, v in value.items() if isinstance(v, dict)} if self.parts else {}
        value = {k: v for k, v in value.items() if str(k) not in parts}
        name = value.get(self.key, self.default)
        if name is None:
            raise PydanticCustomError("choice_missing", "needs a '{key}'", {"key": self.key})
        own = {k: v for k, v in value.items() if k != self.key}
        # the errors of the inner model keep their place: pydantic puts the outer location before each of them
        config = known(self.registry, str(name)).Config.model_validate(own)
        inner = TypeAdapter(dict[str, Annotated[Choice, self]]).validate_python(parts) if parts else {}
        return Choice(str(name), config, inner)

    def dump(self, choice: Choice) -> dict[str, object]:
        """The mapping that `parse` turns into an equal choice."""
        parts = {name: self.dump(part) for name, part in choice.parts.items()}
        return {self.key: choice.name, **choice.config.model_dump(mode="json"), **parts}

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, object]:
        options, more = [], {"additionalProperties": {"type": "object"}} if self.parts else {}
        for name in self.registry.names():
            body = handler.resolve_ref_schema(handler(self.registry[name].Config.__pydantic_core_schema__))
            properties = {self.key: {"const": name}, **body.get("properties", {})}
            required = [*([] if name == self.default else [self.key]), *body.get("required", [])]
            options.append({**body, "title": name, "properties": properties, "required": required, **more})
        return {"anyOf": [{"enum": self.registry.names()}, *options]}


def known(registry: Registry[Any], name: str) -> Any:
    """The class of that name; pydantic's kind of error if there is none."""
    try:
        return registry[name]
    except UnknownName as error:
        raise PydanticCustomError("choice_unknown", "{message}", {"message": str(error)}) from None


@dataclass(frozen=True)
class Choice:
    """A registered name and the validated Config of its class."""

    name: str
    config: Any
    parts: Mapping[str, Choice] = field(default_factory=dict)
    """Choices for single parts by name (the keys of a Dict observation, for encoders)."""
