"""MuJoCo's MjData: the state of the integrator, and every derived array.

A step of an environment may read what the step before derived (the position of a body before the integration, say), and
`mj_forward` would derive it anew from newer positions. Arrays of constraints and contacts are derived in each step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ludus.types import State

POINTERS = "plugin_data"
FLAGS = ("flg_energypos", "flg_energyvel", "flg_subtreevel", "flg_rnepost")
"""What has been derived lazily since the last step."""
_names: dict[tuple[int, int], list[str]] = {}
"""Fields by model."""

Native = Any
"""An object of MuJoCo's, which has no types."""


def take(data: Native, claim: Callable[[np.ndarray], None]) -> State:
    """State of an MjData; `claim` is called with its arrays."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    integration = np.empty(mujoco.mj_stateSize(data.model, kind))
    mujoco.mj_getState(data.model, data, integration, kind)
    fields = _fields(data)
    kinds: dict[str, list[np.ndarray]] = {}
    for array in fields.values():
        claim(array)
        kinds.setdefault(array.dtype.str, []).append(array.ravel())
    packed = {kind: np.concatenate(arrays) for kind, arrays in kinds.items()}
    flags = {name: bool(getattr(data, name)) for name in FLAGS}
    return {"integration": integration, "fields": " ".join(fields), "arrays": packed, "flags": flags}


def give(data: Native, state: State) -> None:
    """Load a state into an MjData of the same model; ValueError if it does not fit."""
    import mujoco

    fields = _fields(data)
    if " ".join(fields) != state["fields"]:
        raise ValueError("another MuJoCo or another model")
    mujoco.mj_setState(data.model, data, np.array(state["integration"]), mujoco.mjtState.mjSTATE_INTEGRATION)
    at = dict.fromkeys(state["arrays"], 0)
    for array in fields.values():
        kind = array.dtype.str
        begin, at[kind] = at[kind], at[kind] + array.size
        array[...] = state["arrays"][kind][begin : at[kind]].reshape(array.shape)
    if any(at[name] != len(flat) for name, flat in state["arrays"].items()):
        raise ValueError("a model of another size")
    for name in FLAGS:
        setattr(data, name, state["flags"][name])


def model_bytes(model: Native) -> bytes:
    """All bytes of an MjModel, to detect changes."""
    import mujoco

    buffer = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()


def _fields(data: Native) -> dict[str, np.ndarray]:
    """The arrays that an MjData owns, whose sizes depend on the model, by name."""
    model = data.model
    sizes = (model.signature, model.nbuffer)
    if sizes not in _names:
        import mujoco

        untouched = mujoco.MjData(model)
        fields = ((name, getattr(untouched, name)) for name in dir(untouched) if not name.startswith("_"))
        held = ((name, value) for name, value in fields if isinstance(value, np.ndarray) and value.size)
        _names[sizes] = [name for name, value in held if not value.flags.owndata and name != POINTERS]
    return {name: getattr(data, name) for name in _names[sizes]}
