"""A look into a policy at one step."""

from __future__ import annotations

from typing import Any

from ludus.inspector.layers import layers
from ludus.inspector.recording import Played
from ludus.inspector.saliency import saliency


def look(played: Played, t: int) -> dict[str, Any]:
    """What the decision depends on, and what the layers do."""
    return {"t": t, **saliency(played, t), **layers(played, t)}
