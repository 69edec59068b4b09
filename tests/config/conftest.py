"""A config directory in a temporary place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from ludus.config.compose import Resolved, load
from ludus.errors import ConfigError

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write one file below the config directory."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    return write


@pytest.fixture
def get(tmp_path: Path) -> Callable[..., Resolved]:
    """Load a spec from the config directory."""
    return lambda spec, *overrides: load(spec, overrides, config_dirs=[tmp_path])


@pytest.fixture
def refused(get: Callable[..., Resolved]) -> Callable[..., str]:
    """The one line a spec is refused with."""

    def refused(spec: str, *overrides: str) -> str:
        with pytest.raises(ConfigError) as caught:
            get(spec, *overrides)
        line = caught.value.line()
        assert "\n" not in line and caught.value.exit_code == 2
        return line

    return refused


@pytest.fixture
def cartpole(write: Write) -> Any:
    """A small environment file with two variants."""
    return write(
        "environments/CartPole-v1.yaml",
        """\
        _base: &base
          env_id: CartPole-v1
          n_envs: 8
          max_timesteps: 1e5
        ppo:
          <<: *base
          description: the usual
          algo_id: ppo
          n_steps: 32
          n_epochs: 20
          batch_size: 256
          policy_lr: lin_0.001
          clip_range: {start: 0.2, end: 0.0}
        gru:
          extends: ppo
          network: {memory: {type: gru, hidden_dim: 16}}
        """,
    )
