"""Write a run as a package that anybody may read: no secrets, no local paths, nothing that only this machine has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus import files
from ludus.archive import history, package, record
from ludus.archive.package import Manifest
from ludus.archive.portable import (
    facts_of,
    plugins_of,
    portable_config,
    provenance_of,
    refuse_paths,
    refuse_private,
    write_checkpoint,
)
from ludus.archive.record import Record
from ludus.archive.store import RunFolder
from ludus.config.compose import to_yaml
from ludus.envs.make import make_vector
from ludus.errors import ConfigError, DataError, LudusError, MissingExtra
from ludus.hub.card import Card
from ludus.metrics.sinks.jsonl import encode
from ludus.play import episodes as play_episodes
from ludus.reports.statistics import iqm, stratified_bootstrap
from ludus.seeding import Streams
from ludus.session.border import FILE as SPACES
from ludus.session.evaluate import evaluated
from ludus.session.player import policy_in, run_config, saved_config

VIDEO_STEPS = 2_000


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
