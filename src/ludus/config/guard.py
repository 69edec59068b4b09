"""What no config may hold: secrets, and anything that would name code to run."""

from __future__ import annotations

import re
from typing import Any

from ludus.errors import ConfigError

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET = {"secret", "secrets", "password", "passwd", "token", "apikey", "credential", "credentials"}
_KEY_OF = {"api", "access", "private", "auth", "account", "ssh", "signing", "encryption", "aws", "wandb", "hf"}


def is_secret(key: str, value: Any = "?") -> bool:
    """Whether a key with this value looks like a credential; `token_dim: 8`, `key: image` and empty values do not."""
    words = {word.lower() for word in _WORD.findall(key)}
    named = bool(words & _SECRET) or bool(words & {"key", "keys"} and words & _KEY_OF)
    return named and isinstance(value, str) and value != ""


def refuse(path: tuple[str, ...], value: Any, origin: str) -> None:
    """Raise for a secret, a `_target_` or another instruction to Hydra anywhere below `path`."""
    _check(path, value, origin)
    if isinstance(value, dict):
        for key, item in value.items():
            refuse((*path, str(key)), item, origin)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            refuse((*path, str(index)), item, origin)


def masked(override: str) -> str:
    """An override as messages may show it: without the value where the key looks like a secret's."""
    key, separator, _ = override.partition("=")
    name = key.rpartition(".")[2].lower()
    return f"{key}=***" if separator and re.search("key|token|secret|passw", name) else override


def _check(path: tuple[str, ...], value: Any, origin: str) -> None:
    key = path[-1]
    if is_secret(key, value):
        remedy = "secrets come from the environment or the tool's own login, never from a config"
        raise ConfigError(masked(origin), f"{'.'.join(path)}: looks like a secret", remedy)
    if key in ("_target_", "_partial_", "_args_", "_recursive_", "_convert_"):
        raise ConfigError(origin, f"{'.'.join(path)}: import paths are off", "choose a registered 'type' or 'name'")
