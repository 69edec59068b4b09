"""Secrets: what a config may not contain, and what no message, log or recorded command line shows."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from ludus.errors import ConfigError

HIDDEN = "***"
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET = {"secret", "secrets", "password", "passwd", "passphrase", "token", "apikey", "credential", "credentials"}
_KEY = {"key", "keys"}
_KEY_OF = {"api", "access", "private", "auth", "account", "ssh", "signing", "encryption", "aws", "wandb", "hf"}
_RANDOM = re.compile(r"[\w+/=.-]{20,}")
_TOKEN = re.compile(r"(?:sk|pk)-[\w-]{16,}|hf_\w{16,}|gh[pousr]_\w{20,}|AKIA[0-9A-Z]{16}")
_HIDE = re.compile(rf"\b(?:{_TOKEN.pattern}|[0-9a-f]{{40}})\b")
_PLACES = ("_FILE", "_PATH", "_DIR")
"""Variables that name the file of a secret: an error message has to show that name."""


def refuse(path: tuple[str, ...], value: object, origin: str) -> None:
    """Raise if a config value at or below `path` is a secret or names code to import."""
    key, dotted = path[-1], ".".join(path)
    if is_secret(key, value):
        where = origin.partition("=")[0] + f"={HIDDEN}" if "=" in origin else origin
        remedy = "secrets come from the environment or the tool's own login, never from a config"
        raise ConfigError(where, f"{dotted}: looks like a secret", remedy)
    if key in ("_target_", "_partial_", "_args_", "_recursive_", "_convert_"):
        raise ConfigError(origin, f"{dotted}: import paths are off", "choose a registered 'type' or 'name'")
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        refuse((*path, str(name)), item, origin)


def is_secret(key: str, value: object) -> bool:
    """Whether a value is a credential; `token_dim: 8`, `key: image` and empty values are not."""
    if not isinstance(value, str) or not value:
        return False
    known = (secret for name, secret in _variables(os.environ) if _is_credential(name, secret))
    return _is_credential(key, value) or bool(_TOKEN.fullmatch(value)) or any(secret in value for secret in known)


def masked(override: str) -> str:
    """An override for messages: the value is hidden if the key may be that of a secret."""
    key, separator, _ = override.partition("=")
    return f"{key}={HIDDEN}" if separator and _may_be_secret(key) else override


def scrub(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Command-line arguments without secrets."""
    scrubbed, hide_next = [], False
    for argument in argv:
        shown = HIDDEN if hide_next else masked(argument)
        hide_next = not hide_next and "=" not in argument and argument.startswith("-") and _may_be_secret(argument)
        scrubbed.append(hide(shown, environ))
    return scrubbed


def hide(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Text without the values of secret environment variables and without anything that has the form of a token."""
    for name, value in _variables(environ):
        if _may_be_secret(name):
            text = text.replace(value, HIDDEN)
    return _HIDE.sub(HIDDEN, text)


def contains(text: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a text has the value of a secret environment variable in it, or anything with the form of a token."""
    known = (value for name, value in _variables(environ) if _is_credential(name, value))
    return bool(_TOKEN.search(text)) or any(value in text for value in known)


def _variables(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Environment variables whose value is long enough to be a secret."""
    return [(name, value) for name, value in environ.items() if len(value) >= 8 and not name.endswith(_PLACES)]


def _is_credential(name: str, value: str) -> bool:
    """Strict, because it refuses a config: `key` alone needs a value that looks random."""
    words = _words(name)
    return bool(words & _SECRET or (words & _KEY and (words & _KEY_OF or _RANDOM.fullmatch(value))))


def _may_be_secret(name: str) -> bool:
    """Generous, because it only hides text."""
    return bool(_words(name) & (_SECRET | _KEY))


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}
