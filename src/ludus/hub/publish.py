"""Write a run as a package that anybody may read: no secrets, no local paths, nothing that only this machine has."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ludus import files, secrets
from ludus.archive import checkpoint, history, record, run_plugins
from ludus.archive.record import Record, mapping
from ludus.archive.store import RunFolder
from ludus.config.compose import config_hash, dump, to_yaml
from ludus.config.schema import ExperimentConfig, Logging
from ludus.envs.make import make_vector, number_of_envs
from ludus.errors import ConfigError, DataError, LudusError, MissingExtra
from ludus.hub import package
from ludus.hub.card import Card
from ludus.hub.package import Manifest
from ludus.metrics.sinks.jsonl import encode
from ludus.play import episodes as play_episodes
from ludus.plugins import is_file
from ludus.reports.statistics import iqm, stratified_bootstrap
from ludus.seeding import Streams
from ludus.session.border import FILE as SPACES
from ludus.session.evaluate import evaluated
from ludus.session.player import policy_in, run_config, saved_config

VIDEO_STEPS = 2_000
_FACTS = ("id", "name", "algorithm", "environment", "seed", "env_steps", "updates", "seconds", "threshold", "started")


@dataclass(frozen=True)
class Wishes:
    """What the user asks for besides the run."""

    episodes: int = 100
    licence: str = "mit"
    repo: str = "user/name"
    """How the card names the repository."""
    say: Callable[[str], None] = lambda _: None


def write_package(run: RunFolder, step: str, folder: Path, wishes: Wishes) -> Manifest:
    """Write every file of the package into an empty folder; refuses to leave anything private there."""
    found = record.read(run.path)
    if found is None:
        raise DataError(str(run.path), "has no config.yaml", "it is not the folder of a run")
    config = portable_config(saved_config(run))
    refuse_paths(config)
    write_checkpoint(run, step, config, folder)
    files.write_text(folder / package.CONFIG, to_yaml(config))
    rows = list(history.rows(run.path))
    if rows:
        files.write_bytes(folder / package.ROWS, b"".join(map(encode, rows)))
    if (run.path / SPACES).is_file():
        files.write_bytes(folder / package.SPACES, files.read(run.path / SPACES, package.LIMITS[package.SPACES]))
    manifest = Manifest(
        checkpoint=step,
        run=facts_of(found, run, step, config),
        provenance=provenance_of(run),
        plugins=plugins_of(run),
        evaluation=evaluation_of(run, step, wishes),
        files=package.listed(folder),
    )
    draw_curve(found, folder, wishes)
    record_video(run, step, folder, wishes)
    shown = [name for name in (package.VIDEO, package.CURVE) if (folder / name).exists()]
    manifest.write(folder)
    files.write_text(folder / package.CARD, Card(manifest, config, wishes.licence, wishes.repo, shown).text())
    refuse_private(folder, run)
    return manifest


def portable_config(config: ExperimentConfig) -> ExperimentConfig:
    """The config without what belongs to this machine: its device, logs, programs and folders."""
    buffers = {
        name: replace(choice, config=choice.config.model_copy(update={"path": package.NOT_PUBLISHED}))
        if "path" in type(choice.config).model_fields
        else choice
        for name, choice in config.buffers.items()
    }
    return config.model_copy(
        update={
            "experiment": config.experiment.model_copy(update={"device": "auto"}),
            "training": config.training.model_copy(update={"resume_path": None}),
            "logging": Logging(),
            "buffers": buffers,
        }
    )


def refuse_paths(config: ExperimentConfig) -> None:
    """No value of the config is a path that only this machine has."""
    for place in package.local_paths(dump(config)):
        raise ConfigError(f"config.yaml: {place}", "is a local path", "publish a run that does without it")


def write_checkpoint(run: RunFolder, step: str, config: ExperimentConfig, folder: Path) -> None:
    """The state without environments, stored steps and what it tells about the machine: episodes begin anew."""
    state = checkpoint.load(checkpoint.find(run.path, step))
    state.pop("about", None)
    if "collector" in state:
        seeds = Streams(config.experiment.seed).integers(f"published {step}", number_of_envs(config.environment))
        kept = ("returns", "lengths", "episodes", "best_return", "steps")
        collector = {key: state["collector"][key] for key in kept}
        state["collector"] = {**collector, "env": None, "barrier_seeds": seeds}
    state["buffers"] = {}
    for name, data in checkpoint.encode(state).items():
        target = {checkpoint.TENSORS: package.WEIGHTS, checkpoint.STATE: package.STATE}[name]
        files.write_bytes(folder / target, data)


def facts_of(found: Record, run: RunFolder, step: str, config: ExperimentConfig) -> dict[str, Any]:
    """Facts about the run; the state is that in which a copy of this checkpoint is."""
    newest = list(checkpoint.checkpoints(run.path))[-1] == step
    state = "finished" if found.state == "finished" and newest else "stopped"
    spec = found.spec if ":" in found.spec and "/" not in found.spec.partition(":")[2] else ""
    spec = "" if found.spec.startswith(("/", "~", ".")) or ".yaml" in spec else spec
    return {**found.values(_FACTS), "spec": spec, "state": state, "config_hash": config_hash(config)}


def provenance_of(run: RunFolder) -> dict[str, Any]:
    """Versions and commit of the code, and the kind of machine; neither names nor paths."""
    from ludus.archive import rebuild

    meta = rebuild.meta(run.path)
    git, versions, host = (mapping(meta.get(key)) for key in ("git", "versions", "host"))
    system = str(host.get("platform") or platform.system()).partition("-")[0]
    return {
        "versions": {str(name): str(version) for name, version in versions.items()},
        "git": {key: git[key] for key in ("commit", "dirty") if key in git},
        "machine": f"{system} {host.get('machine') or ''}".strip(),
        "published": datetime.now(UTC).date().isoformat(),
    }


def plugins_of(run: RunFolder) -> list[dict[str, str]]:
    """The plugins by name and sum, without the place where they are."""
    recorded = run_plugins.recorded(run)
    return [{"name": Path(one.name).name if is_file(one.name) else one.name, "sha256": one.sha256} for one in recorded]


def evaluation_of(run: RunFolder, step: str, wishes: Wishes) -> dict[str, Any] | None:
    """Fresh episodes of the checkpoint, as `ludus evaluate` plays them; None for a run without an environment."""
    import numpy as np

    config = saved_config(run)
    if not config.environment.id:
        return None
    wishes.say(f"playing {wishes.episodes} episodes ...")
    seed = config.experiment.seed
    result = evaluated(run, step, wishes.episodes, None, seed)
    low, high = stratified_bootstrap([result.returns], np.mean) if result.episodes > 1 else (None, None)
    return {
        "episodes": result.episodes,
        "seed": seed,
        "deterministic": result.deterministic,
        "mean": result.mean,
        "std": result.std,
        "low": low,
        "high": high,
        "iqm": float(iqm(result.returns)),
        "length_mean": result.length_mean,
        "returns": list(result.returns),
    }


def draw_curve(found: Record, folder: Path, wishes: Wishes) -> None:
    """The learning curve as a picture, where matplotlib is installed and there is a curve."""
    from ludus.reports.compare import compare
    from ludus.reports.plots import plot

    try:
        plot(compare([found], metrics=["final"]), folder / package.CURVE)
    except MissingExtra as error:
        wishes.say(f"without a picture of the curve: {error.remedy}")
    except LudusError as error:
        wishes.say(f"without a picture of the curve: {error.problem}")


def record_video(run: RunFolder, step: str, folder: Path, wishes: Wishes) -> None:
    """One episode as a video, where the environment can be drawn and the encoder is installed."""
    from ludus.archive.video import write_video

    if not saved_config(run).environment.id:
        return
    config = run_config(run)
    try:
        with make_vector(config.environment, num_envs=1, render_mode="rgb_array", vectorization="sync") as env:
            act, _ = policy_in(config, run, step, env, None)
            seeds = Streams(config.experiment.seed).integers("evaluate", 1)
            steps = play_episodes(act, env, seeds, 1, max_steps=VIDEO_STEPS, render=True)
            frames = (frame for played in steps for frame in played.frames)
            write_video(folder / package.VIDEO, frames, env.info.render_fps)
    except LudusError as error:
        wishes.say(f"without a video: {error.line()}")


def refuse_private(folder: Path, run: RunFolder) -> None:
    """The last look: no text of the package names a secret or a folder of this machine."""
    places = {str(Path.home()), str(Path.cwd()), str(run.path.absolute()), str(run.path.resolve().parent)}
    private = sorted((place for place in places if len(place) > 4), key=len, reverse=True)
    for path in sorted(folder.iterdir()):
        if path.suffix in (".mp4", ".png", ".safetensors"):
            continue
        text = path.read_text(encoding="utf-8")
        if secrets.contains(text):
            raise ConfigError(path.name, "contains what looks like a secret", "remove it from the run's config")
        place = next((place for place in private if place in text), None)
        if place is not None:
            remedy = "remove it from the run's config or description: everybody would read it"
            raise ConfigError(path.name, f"names the local folder {place}", remedy)


def refuse_folder(folder: Path) -> None:
    """A package needs a folder of its own."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--dry-run {folder}", "is not an empty folder", "name a new one")


def summary(evaluation: Mapping[str, Any] | None) -> str:
    """`110.75 ± 11.14 over 100 episodes`."""
    if evaluation is None:
        return "not evaluated: the run has no environment"
    low, high = evaluation.get("low"), evaluation.get("high")
    interval = "" if low is None else f", 95 % interval of the mean {low:,.2f} to {high:,.2f}"
    return f"{evaluation['mean']:,.2f} ± {evaluation['std']:,.2f} over {evaluation['episodes']} episodes{interval}"
