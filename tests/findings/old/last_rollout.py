"""F1: the short last rollout is compiled, or is not, alike in a whole run and in a resumed one."""

import tempfile
from pathlib import Path
from typing import Any

from ludus.config.schema import ExperimentConfig
from ludus.experiment import build
from ludus.networks import compiled

functions: dict[Path, Any] = {}
decided: dict[int, bool] = {}
get = compiled.Compiler.get


def build_package(function: Any, example: Any, path: Path) -> None:
    """No machine code: the function itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    functions[path] = function


def spy(self: compiled.Compiler, function: Any, example: Any, *rest: Any, may_build: bool) -> Any:
    """Note for each size of a minibatch whether it is compiled."""
    found = get(self, function, example, *rest, may_build=may_build)
    decided[max(x.shape[1] for x in example if x.ndim == 2)] = found is not None
    return found


compiled.build_package, compiled.Compiler.get = build_package, spy
compiled.load_package = lambda path: lambda arguments: list(functions[path](*arguments))
folder = Path(tempfile.mkdtemp())
compiled.default_folder = lambda: folder


def train(steps: int, state: dict[str, Any] | None = None) -> dict[str, Any]:
    """Train from the start, or with the decision of a checkpoint; the decision that is saved."""
    ppo = {"name": "ppo", "rollout_steps": 16, "batch_size": 0.5, "epochs": 2}
    sections = {"environment": {"id": "CartPole-v1", "num_envs": 4}, "runtime": {"compile": "always"}}
    cfg = ExperimentConfig.model_validate({**sections, "algorithm": ppo, "training": {"total_timesteps": steps}})
    run = build(cfg)
    if state:
        run.stateful["compiler"].load_state_dict(state)
    run.run()
    return run.stateful["compiler"].state_dict()


saved = train(128 + 24)
whole = dict(decided)
assert whole.keys() == {32, 12} and whole[32], "rollouts of 64 steps in halves, then one of 24"
train(24, saved)  # as a resume does that has only the last rollout before it
assert decided[12] == whole[12], "the last rollout is compiled after a resume and was not without one"
