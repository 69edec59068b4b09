"""What no config may hold: secrets, and anything that would name code to run."""

from __future__ import annotations

import os
import re
from typing import Any

from ludus.errors import ConfigError

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET = {"secret", "secrets", "password", "passwd", "token", "apikey", "credential", "credentials"}
_KEY_OF = {"api", "access", "private", "auth", "account", "ssh", "signing", "encryption", "aws", "wandb", "hf"}
_SHAPE = re.compile(r"(sk|pk)-[\w-]{16,}|hf_\w{16,}|gh[pousr]_\w{20,}|AKIA[0-9A-Z]{16}")
_RANDOM = re.compile(r"[\w+/=.-]{20,}")


def is_secret(key: str, value: Any) -> bool:
    """Whether a key with this value looks like a credential; `token_dim: 8`, `key: image` and empty values do not."""
    if not isinstance(value, str) or not value:
        return False
    return _names_secret(key, value) or bool(_SHAPE.fullmatch(value)) or _in_environment(value)


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
    """An override as messages may show it: without the value where the key may be a secret's."""
    key, separator, _ = override.partition("=")
    return f"{key}=***" if separator and _words(key) & {*_SECRET, "key", "keys"} else override


def _check(path: tuple[str, ...], value: Any, origin: str) -> None:
    key, dotted = path[-1], ".".join(path)
    if is_secret(key, value):
        remedy = "secrets come from the environment or the tool's own login, never from a config"
        where = origin.partition("=")[0] + "=***" if "=" in origin else origin
        raise ConfigError(where, f"{dotted}: looks like a secret", remedy)
    if key in ("_target_", "_partial_", "_args_", "_recursive_", "_convert_"):
        raise ConfigError(origin, f"{dotted}: import paths are off", "choose a registered 'type' or 'name'")


def _names_secret(key: str, value: str) -> bool:
    words = _words(key)
    return bool(words & _SECRET or ("key" in words and (words & _KEY_OF or _RANDOM.fullmatch(value))))


def _in_environment(text: str) -> bool:
    """Whether a text holds what a secret variable of the environment holds, pasted or expanded by a shell."""
    return any(len(value) >= 8 and value in text and _names_secret(name, value) for name, value in os.environ.items())


def _words(key: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(key)}
