"""Imported once by the server that runs are forked from: what every run needs, and nothing that computes."""

from __future__ import annotations

import gc

import gymnasium  # noqa: F401
import hydra.core.override_parser.overrides_parser  # noqa: F401
import torch  # noqa: F401

import ludus.archive.index
import ludus.archive.run_plugins
import ludus.config.compose
import ludus.session.resume
import ludus.session.train  # noqa: F401
from ludus.registry import ALGORITHMS

for name in ALGORITHMS.names():
    ALGORITHMS[name]
gc.freeze()  # collecting garbage in a fork would copy these pages
