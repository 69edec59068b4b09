"""Command lines without secrets, for files that others may see."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

HIDDEN = "***"
_SECRET_NAME = re.compile(r"(?i)(^|[^a-z])(api_?key|key|token|secret|passw(or)?d|passphrase|credentials?)($|[^a-z])")
_SECRET_TEXT = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|[0-9a-f]{40}|sk-[A-Za-z0-9_-]{16,}|AKIA[A-Z0-9]{16}|gh[ps]_[A-Za-z0-9]{20,})\b"
)


def scrub(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Arguments with the values of secret-looking names, known key formats and secret environment variables hidden."""
    values = [value for name, value in environ.items() if _SECRET_NAME.search(name) and len(value) >= 8]
    scrubbed, hide_next = [], False
    for argument in argv:
        name, equals, _ = argument.partition("=")
        if hide_next:
            argument, hide_next = HIDDEN, False
        elif equals and _SECRET_NAME.search(name):
            argument = f"{name}={HIDDEN}"
        elif argument.startswith("-") and _SECRET_NAME.search(argument):
            hide_next = True
        for value in values:
            argument = argument.replace(value, HIDDEN)
        scrubbed.append(_SECRET_TEXT.sub(HIDDEN, argument))
    return scrubbed
