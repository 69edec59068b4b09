"""Overrides in Hydra's grammar: `a.b=c` sets, `+a.b=c` adds, `++a.b=c` does either, `~a.b` takes away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.config.aliases import canonical
from ludus.config.guard import masked
from ludus.config.layers import MISSING, Layer, Writer, merge, select, without
from ludus.errors import ConfigError

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


@dataclass(frozen=True)
class Change:
    """One parsed override."""

    text: str
    sign: str
    """`""`, `"+"`, `"++"` or `"~"`."""
    key: str
    """Dotted path, or a config group."""
    package: str | None
    value: Any
    bare: bool
    """A deletion that names no value."""

    @property
    def where(self) -> str:
        """The override as an error message shows it."""
        return masked(self.text)


def read_overrides(texts: Sequence[str]) -> list[Change]:
    """Read overrides; nothing is looked up yet."""
    if not texts:
        return []
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    changes = []
    for text in texts:
        if "=" not in text and not text.startswith("~"):
            raise ConfigError(text, "not an override", "write key=value")
        try:
            changes.append(_change(text, parser.parse_override(text)))
        except RecursionError:
            raise ConfigError(masked(text)[:60], "nested too deeply", "write it into a file") from None
        except HydraException as error:
            problem = f"not an override: {str(error).splitlines()[0]}"
            raise ConfigError(masked(text), problem, "write key=value; quote values with special characters") from None
    return changes


def _change(text: str, override: Override) -> Change:
    if override.is_sweep_override():
        remedy = "use ludus sweep, [a,b] for a list, or quote a string that has commas"
        raise ConfigError(masked(text), f"{override.key_or_group}: several values for one run", remedy)
    if override.key_or_group.split(".")[0].split("/")[0] == "hydra":
        raise ConfigError(text, "Hydra's own settings are not used", "see ludus train --help")
    sign = "~" if override.is_delete() else "+" if override.is_add() else "++" if override.is_force_add() else ""
    bare = override.value_type is None
    value = None if bare else override.value()
    return Change(text, sign, override.key_or_group, override.package, value, bare)


def apply(base: Layer, changes: Sequence[Change]) -> Layer:
    """The layer with all changes made; together they are one layer, so their order does not matter."""
    writer = Writer()
    for change in changes:
        written = tuple(change.key.split("."))
        path, _ = canonical(written)
        old = select(base.data, path)
        if change.package is not None or not all(written):
            raise ConfigError(change.where, f"no config group '{change.key}'", "write section.field=value")
        if change.sign == "~":
            if old is MISSING or not (change.bare or change.value == old):
                raise ConfigError(change.where, f"{change.key}: there is no such value to take away", "leave it out")
            base = without(base, path)
            continue
        if change.sign == "+" and old is not MISSING and not isinstance(old, (dict, list)):
            remedy = f"drop the '+' of '{change.where}', or write '++'"
            raise ConfigError(change.where, f"{change.key}: is set already", remedy)
        writer.feed(written, change.value, change.where)
    return merge(base, writer.layer())
