"""Contract suites for plugin authors: inherit from one in a test file, tell it how to make your part, run pytest."""

from __future__ import annotations

from ludus.testing.buffers import BufferContract as BufferContract
from ludus.testing.networks import EncoderContract as EncoderContract
from ludus.testing.networks import MemoryCoreContract as MemoryCoreContract
from ludus.testing.representations import RepresentationContract as RepresentationContract
from ludus.testing.runs import AlgorithmContract as AlgorithmContract
from ludus.testing.runs import CallbackContract as CallbackContract
from ludus.testing.sinks import SinkContract as SinkContract
from ludus.testing.wrappers import WrapperContract as WrapperContract
