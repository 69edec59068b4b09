"""Runs one smoke test: `python -m ludus.checks.trial KIND SPEC TIMESTEPS FOLDER [PLUGIN]...`.

The last line on stdout is JSON: whether the test passed, or what is missing. A process that dies has failed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.envs.facts import file_of
from ludus.envs.suites import spelled
from ludus.errors import EnvironmentFailed, LudusError, Missing, MissingExtra
from ludus.plugins import load_plugins
from ludus.types import Array, tree_index

if TYPE_CHECKING:
    from ludus.config.schema import Environment, ExperimentConfig

BASE = "CartPole-v1:ppo"
"""Trains environments that have no config."""
ENVIRONMENTS = 4
FRAMES = 10


def main(kind: str, spec: str, timesteps: str, folder: str = ".", *plugins: str) -> int:
    """Run the test and print its result; `folder` is where the user is, and where modules are looked for."""
    try:
        with chdir(folder):
            load_plugins(plugins)
        TRIALS[kind](spec, int(timesteps))
    except Missing as error:
        return _tell("MISSING", error.remedy if isinstance(error, MissingExtra) else error.line())
    except LudusError as error:
        return _tell("FAIL", error.line())
    return _tell("PASS")


def _tell(status: str, detail: str = "") -> int:
    print(json.dumps({"status": status, "detail": detail}), flush=True)
    return 0


def train(spec: str, timesteps: int) -> None:
    """Train briefly: small rollouts, one evaluated episode, no logging."""
    from ludus.config.compose import load
    from ludus.session.train import train as train_run

    spec, overrides = resolve(spec)
    overrides += small(load(spec, overrides).config, timesteps)
    with tempfile.TemporaryDirectory() as folder:
        run = train_run(load(spec, overrides), runs_dir=Path(folder))
    if not run.progress.env_steps:
        raise EnvironmentFailed(spec, "trained for no step at all", "raise --timesteps")


def small(config: ExperimentConfig, timesteps: int) -> list[str]:
    """Overrides that make a run of any algorithm short."""
    wanted = config.environment.num_envs
    count = ENVIRONMENTS if wanted == "auto" else min(wanted, ENVIRONMENTS)
    known = type(config.algorithm.config).model_fields
    overrides = [
        f"training.total_timesteps={max(timesteps, count)}",
        f"environment.num_envs={count}",
        "training.evaluation={episodes: 1, num_envs: 1, every_epochs: 1, timeout_seconds: 1}",
        "training.checkpoints.every_minutes=null",
        "training.stop={}",
        "logging={console: false, csv: false, tensorboard: false, wandb: false}",
        "runtime.compile=never",
    ]
    short: dict[str, float] = {"rollout_steps": min(max(timesteps // (2 * count), 2), 32), "epochs": 1}
    if "learning_starts" in known:
        short |= {"learning_starts": max(timesteps // 4, 1), "batch_size": 16}
    elif "rollout_steps" in known:
        short |= {"batch_size": 0.5}
    overrides += [f"algorithm.{name}={value}" for name, value in short.items() if name in known]
    return overrides


def env(spec: str, timesteps: int) -> None:
    """Random actions; every observation must be inside the space."""
    import numpy as np

    from ludus.acting.uniform import uniform
    from ludus.envs.check import fault
    from ludus.envs.make import make_vector

    with make_vector(environment(spec), num_envs=2) as venv:
        space, rng = venv.observation_space, np.random.default_rng(0)
        first = venv.reset([0, 1])
        rows = [tree_index(first, i) for i in range(2)]
        for step in range(timesteps):
            result = venv.step(uniform(venv.action_space, 2, rng))
            if result.final_obs is not None:
                rows += [tree_index(result.final_obs, i) for i in np.flatnonzero(result.done)]
            rows += [tree_index(result.obs, i) for i in range(2)]
            problem = next(filter(None, (fault(space, row) for row in rows)), None)
            if problem or not np.isfinite(result.reward).all():
                what = f"an observation {problem}" if problem else "a reward is not finite"
                raise EnvironmentFailed(venv.id, f"step {step}: {what}", "fix the environment or wrap it")
            rows.clear()


def video(spec: str, timesteps: int) -> None:
    """Record a video; the file must contain every frame."""
    import av
    import numpy as np

    from ludus.acting.uniform import uniform
    from ludus.archive.video import write_video
    from ludus.envs.make import make_vector

    rng, path = np.random.default_rng(0), Path("smoke.mp4")
    cfg = environment(spec)
    with make_vector(cfg, num_envs=1, render_mode="rgb_array", vectorization="sync") as venv:
        venv.reset([0])

        def frames() -> Iterator[Array]:
            """Rendered frames of random play."""
            for _ in range(min(timesteps, FRAMES)):
                yield venv.render()
                venv.step(uniform(venv.action_space, 1, rng))

        count = write_video(path, frames(), venv.info.render_fps)
    with av.open(str(path)) as container:
        played = sum(1 for _ in container.decode(video=0))
    if played != count:
        raise EnvironmentFailed(cfg.id, f"{played} of {count} frames play", "report this")


def environment(spec: str) -> Environment:
    """The environment section of a spec; for an `Env:variant` without importing its algorithm."""
    from ludus.config.compose import load, search_path
    from ludus.config.groups import find_variant
    from ludus.config.merge import Draft
    from ludus.config.schema import Environment

    found, overrides = resolve(spec)
    if overrides:
        return Environment(id=spelled(spec))
    if ":" not in found or found.startswith("+") or Path(found.rpartition(":")[0]).suffix:
        return load(found).config.environment
    draft = Draft(find_variant(found, search_path()).layers(search_path())).resolve()
    return Environment.model_validate(draft.data["environment"])


def resolve(spec: str) -> tuple[str, list[str]]:
    """Spec and overrides: a bare environment id means its first variant, or the default config with that id."""
    if ":" in spec or spec.startswith("+") or spec.endswith((".yaml", ".yml", ".json")):
        return spec, []
    file = file_of(spec)
    variants = file.variants if file else []
    return (f"{spec}:{variants[0]}", []) if variants else (BASE, [f"environment.id={spelled(spec)}"])


TRIALS = {"train": train, "env": env, "video": video}

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
