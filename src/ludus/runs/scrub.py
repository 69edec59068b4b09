"""Command lines without secrets, for files that others may see."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

HIDDEN = "***"
_SECRET_NAME = re.compile(r"(?i)(^|[^a-z])(api_?key|key|token|secret|passw(or)?d|passphrase|credentials?)($|[^a-z])")
_PLACES = ("_FILE", "_PATH", "_DIR")
"""Variables that say where a secret is, not what it is: a message has to name the file."""
_SECRET_TEXT = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|[0-9a-f]{40}|sk-[A-Za-z0-9_-]{16,}|AKIA[A-Z0-9]{16}|gh[ps]_[A-Za-z0-9]{20,})\b"
)


def scrub(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Arguments with the values of secret-looking names, known key formats and secret environment variables hidden."""
    scrubbed, hide_next = [], False
    for argument in argv:
        name, equals, _ = argument.partition("=")
        if hide_next:
            argument, hide_next = HIDDEN, False
        elif equals and _SECRET_NAME.search(name):
            argument = f"{name}={HIDDEN}"
        elif argument.startswith("-") and _SECRET_NAME.search(argument):
            hide_next = True
        scrubbed.append(hide(argument, environ))
    return scrubbed


def hide(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Text without the values of secret environment variables and without anything of a known key format."""
    for name, value in environ.items():
        if len(value) >= 8 and _SECRET_NAME.search(name) and not name.endswith(_PLACES):
            text = text.replace(value, HIDDEN)
    return _SECRET_TEXT.sub(HIDDEN, text)
