"""spaces.json of a run folder: where observations and actions cross the border between environment and policy."""

from __future__ import annotations

from ludus import files
from ludus.archive.store import RunFolder, read_json
from ludus.config.schema import Environment, ExperimentConfig
from ludus.data.buffers.saving import describe_space, read_space
from ludus.envs.deployment import Deployment, deployments
from ludus.envs.suites import suite_of
from ludus.errors import DataError
from ludus.run import Run

FILE = "spaces.json"


def cut_of(folder: RunFolder, config: ExperimentConfig) -> Deployment:
    """The border as the run folder tells it; of a run that has no such file, from an environment."""
    path = folder.path / FILE
    if not path.exists():
        return find_cut(config.environment)
    try:
        data = read_json(path)
        return Deployment(int(data["carried"]), read_space(data["observation"]), read_space(data["action"]))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(str(path), f"is damaged: {error}", "remove it: it is found again from an environment") from None


def find_cut(cfg: Environment) -> Deployment:
    """The border of a config: as many wrappers carried along as have spaces that can be written down."""
    for cut in deployments(cfg):
        try:
            _data(cut)
        except TypeError:
            continue
        return cut
    return deployments(cfg)[-1]


def write_cut(folder: RunFolder, run: Run) -> None:
    """Write the border into a run folder, so that loading its policy needs no environment.

    A run that learns from stored steps may have none: its policy takes observations as they are stored.
    """
    cfg = run.config.environment
    if run.collector is None:
        files.write_json(folder.path / FILE, _data(Deployment(0, run.spaces.observation, run.spaces.action)))
    elif not suite_of(cfg.id).alone:  # of those there is one per process
        files.write_json(folder.path / FILE, _data(find_cut(cfg)))


def _data(cut: Deployment) -> dict[str, object]:
    return {
        "carried": cut.carried,
        "observation": describe_space(cut.observation),
        "action": describe_space(cut.action),
    }
