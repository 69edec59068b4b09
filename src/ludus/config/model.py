"""The base of every config model, and fields whose shape a registered class decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    field_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from ludus.registry import Registry, UnknownName


class Model(BaseModel):
    """Frozen, strict about keys; the docstring under a field is its documentation."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def true_is_no_number(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        """Python takes `true` for 1; a budget of one step is not what anybody means by it."""
        found = validate(value)
        if isinstance(value, bool) and type(found) in (int, float):
            raise ValueError(f"must be a number, not {str(value).lower()}")
        return found


@dataclass(frozen=True)
class Registered:
    """Annotation: the field holds the `Config` of the class that `key` names in `registry`.

    A bare string is short for `{key: string}`. The parsed value is the class's own Config model; its registered
    name is written back on dump, so that a saved config loads again.
    """

    registry: Registry[Any]
    key: str = "type"
    default: str | None = None
    """The name when only other keys are given."""
    parts: bool = False
    """Whether a mapping under any other key is a choice for the part of that name."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.parse, serialization=core_schema.plain_serializer_function_ser_schema(self.dump)
        )

    def parse(self, value: Any) -> Choice:
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
        try:
            cls = self.registry[str(name)]
        except UnknownName as error:
            raise PydanticCustomError("choice_unknown", "{message}", {"message": str(error)}) from None
        # the errors of the inner model keep their place: pydantic puts the outer location before each of them
        config = cls.Config.model_validate({k: v for k, v in value.items() if k != self.key})
        if not parts:
            return Choice(str(name), config)
        return Choice(str(name), config, TypeAdapter(dict[str, Annotated[Choice, self]]).validate_python(parts))

    def dump(self, choice: Choice) -> dict[str, Any]:
        parts = {name: self.dump(part) for name, part in choice.parts.items()}
        return {self.key: choice.name, **choice.config.model_dump(mode="json"), **parts}

    def __get_pydantic_json_schema__(
        self, core: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        options = []
        for name in self.registry.names():
            body = handler.resolve_ref_schema(handler(self.registry[name].Config.__pydantic_core_schema__))
            properties = {self.key: {"const": name}, **body.get("properties", {})}
            required = [*([] if name == self.default else [self.key]), *body.get("required", [])]
            more = {"additionalProperties": {"type": "object"}} if self.parts else {}
            options.append({**body, "title": name, "properties": properties, "required": required, **more})
        return {"anyOf": [{"enum": self.registry.names()}, *options]}


@dataclass(frozen=True)
class Choice:
    """A registered name and the validated Config of the class behind it."""

    name: str
    config: Any
    parts: Mapping[str, Choice] = field(default_factory=dict)
    """Other choices for some parts, by their names (encoders: the keys of a Dict observation)."""
