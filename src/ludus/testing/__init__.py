"""Contract suites for plugin authors: inherit from one in a test file, tell it how to make your part, run pytest."""

from __future__ import annotations

from ludus.testing.algorithms import AlgorithmContract
from ludus.testing.buffers import BufferContract
from ludus.testing.callbacks import CallbackContract
from ludus.testing.encoders import EncoderContract
from ludus.testing.memory import MemoryCoreContract
from ludus.testing.sinks import SinkContract
from ludus.testing.wrappers import WrapperContract

__all__ = ["AlgorithmContract", "BufferContract", "CallbackContract", "EncoderContract", "MemoryCoreContract",
           "SinkContract", "WrapperContract"]  # fmt: skip
