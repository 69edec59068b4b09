"""The number format that convolutions compute in; chosen once, when a run starts."""

from __future__ import annotations

from typing import Literal

import torch

from ludus.errors import DataError

FORMATS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Precision:
    """Weights, features and everything after them stay float32. A resumed run keeps the format of the saved one."""

    def __init__(self, mode: Literal["auto", "float32", "bfloat16"] = "float32") -> None:
        self.name: str = mode if mode != "auto" else "bfloat16" if has_bfloat16() else "float32"

    def __deepcopy__(self, memo: dict[int, object]) -> Precision:
        return self  # copies of a network, such as targets, follow the run's choice too

    @property
    def dtype(self) -> torch.dtype:
        """The format of images and feature maps."""
        return FORMATS[self.name]

    def state_dict(self) -> dict[str, str]:
        """The format: results differ in far more than the last bits."""
        return {"name": self.name}

    def load_state_dict(self, state: dict[str, str]) -> None:
        """Keep the format of the saved run."""
        if state["name"] not in FORMATS:
            raise DataError(
                "checkpoint", f"unknown precision '{state['name']}'", "resume with the version that saved it"
            )
        self.name = state["name"]


def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 (AVX512-BF16 or AMX) rather than emulating it."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
