"""Every stored step is as likely as any other."""

from __future__ import annotations

from ludus.data.buffers.sampling import Buffer
from ludus.registry import BUFFERS


@BUFFERS.register("uniform")
class Uniform(Buffer):
    """Keeps the newest steps and draws them uniformly."""
