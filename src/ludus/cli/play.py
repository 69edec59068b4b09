"""`ludus play RUN`: watch a trained policy, record it, or play yourself."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ludus.cli.options import Checkpoint, Deterministic, EnvId, Json, Plugin, RunsDir
from ludus.errors import ConfigError
from ludus.files import to_json
from ludus.text import did_you_mean

if TYPE_CHECKING:
    from ludus.archive.store import RunFolder
    from ludus.config.schema import ExperimentConfig
    from ludus.envs.vector import VectorEnv
    from ludus.play import EpisodeEnd, PlayedStep
    from ludus.types import Array

Say = Callable[[str], None]
_RUN = "Run id, unique prefix, @last or @best; add /@best, /@last or /step=N. Env:variant without a policy."


def play(
    run: Annotated[str, Argument(help=_RUN)] = "@last",
    episodes: Annotated[int, Option(min=1, help="Episodes to play.")] = 5,
    video: Annotated[str | None, Option(metavar="PATH|auto", help="Record an MP4; auto: into the run.")] = None,
    render: Annotated[str | None, Option(metavar="human|none", help="Default: human with a display.")] = None,
    deterministic: Deterministic = None,
    random: Annotated[bool, Option("--random", help="Random actions; needs no checkpoint.")] = False,
    user: Annotated[bool, Option("--user", help="Play with the keyboard; needs a display.")] = False,
    fps: Annotated[float | None, Option(min=0.1, help="Steps per second at most, and of a video.")] = None,
    step: Annotated[bool, Option("--step", help="Wait for Enter after every step.")] = False,
    seed: Annotated[int | None, Option(min=0, help="Of the environment; default: the run's.")] = None,
    checkpoint: Checkpoint = None,
    env: EnvId = None,
    json: Json = False,
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Play episodes with the policy of a run; prints each return and, with --video, the file."""
    mode = render_mode(render, video, user)
    found, config, name = source(run, checkpoint, runs_dir, env, plugin, trained=not (random or user))
    from ludus.envs.make import make_vector
    from ludus.play import episodes as play_episodes
    from ludus.play import random_policy
    from ludus.session.player import present_policy
    from ludus.terminal import quiet

    say: Say = silence if json or quiet() else print_at_once
    first_seed, played = config.experiment.seed if seed is None else seed, None
    with make_vector(config.environment, num_envs=1, render_mode=mode, vectorization="sync") as made:
        if random or user or found is None:
            act = random_policy(made, first_seed)
        else:
            act, played = present_policy(config, found, checkpoint, made, deterministic)
        say(f"{name}/{played}" if played else f"{name}, {'you play' if user else 'random actions'}")
        path = None if video is None else video_path(found, video)
        say = silence if json else print_at_once
        if user:
            ended = play_yourself(made, episodes, first_seed, fps, say)
        else:
            steps = play_episodes(act, made, [first_seed], episodes, render=path is not None)
            ended = performed(
                paced(steps, fps if path is None else None, step, say), path, fps or made.info.render_fps, say
            )
    if json:
        about = {"run": name, "checkpoint": played, "seed": first_seed, "video": str(path) if path else None}
        print(to_json(about | facts(ended)), end="")
        return
    print(summary(ended))
    if mode is None and render is None and not (step or quiet()):
        print(f"there is no display to watch it on; --video {'auto' if found else 'FILE.mp4'} records it")


def print_at_once(text: str) -> None:
    """Print a line without waiting for more."""
    print(text, flush=True)


def silence(_: str) -> None:
    """Print nothing: all facts come as JSON in the end."""


def source(
    reference: str,
    checkpoint: str | None,
    runs_dir: Path,
    env: str | None,
    plugin: list[Path] | None = None,
    *,
    trained: bool,
) -> tuple[RunFolder | None, ExperimentConfig, str]:
    """Run (if it is one), its config, and the name of what is played."""
    from ludus.archive.run_plugins import load_for
    from ludus.archive.store import RunFolder
    from ludus.session.player import checkpoint_name, run_config

    if ":" in reference and not trained:
        from ludus.archive.run_plugins import load_for_spec
        from ludus.config.compose import load as compose

        load_for_spec(reference, [], plugin)
        return None, compose(reference).config, reference
    found = RunFolder.load(runs_dir, reference)
    load_for(found, plugin)
    if trained:
        checkpoint_name(found, checkpoint)  # refuses what is not there before anything is made
    return found, run_config(found, env), found.id


def performed(steps: Iterable[PlayedStep], path: Path | None, fps: float, say: Say) -> list[EpisodeEnd]:
    """Play the episodes, before a spectator or into a video."""
    from ludus.archive.video import write_video

    ended: list[EpisodeEnd] = []
    if path is None:
        deque(shown(steps, ended, say), maxlen=0)
    else:
        say(f"video {path} ({write_video(path, shown(steps, ended, say), fps):,} frames)")
    return ended


def shown(steps: Iterable[PlayedStep], ended: list[EpisodeEnd], say: Say) -> Iterator[Array]:
    """The frames of an environment; finished episodes are told and added to `ended`."""
    for step in steps:
        yield from step.frames
        for end in step.ended:
            ended.append(end)
            say(f"episode {len(ended):>3}   return {end.total:>10,.1f}   length {end.length:>6,}")


def facts(ended: list[EpisodeEnd]) -> dict[str, Any]:
    """Returns and lengths of the episodes, with mean and deviation."""
    import numpy as np

    returns, lengths = [float(end.total) for end in ended], [int(end.length) for end in ended]
    mean, std = (float(np.mean(returns)), float(np.std(returns))) if ended else (None, None)
    return {"episodes": len(ended), "mean": mean, "std": std, "returns": returns, "lengths": lengths}


def summary(ended: list[EpisodeEnd]) -> str:
    """Mean and deviation over the episodes."""
    if not ended:
        return "no episode was finished"
    found = facts(ended)
    length = sum(found["lengths"]) / len(ended)
    return "mean {mean:,.1f} ± {std:,.1f} over {episodes} episodes".format(**found) + f", length {length:,.1f}"


def paced(steps: Iterable[PlayedStep], fps: float | None, step: bool, say: Say) -> Iterator[PlayedStep]:
    """The steps with a pause after each, or with a line and a wait for Enter (`q` ends the waiting)."""
    due, waiting = time.monotonic(), step
    for done in steps:
        if step:
            about = f"action {done.action[0]}   reward {done.reward[0]:g}   return {done.total[0]:g}"
            say(f"step {done.length[0]:>5}   {about}")
        if waiting:
            answer = sys.stdin.readline()
            waiting = bool(answer) and answer.strip().lower() not in ("q", "quit")
        elif fps is not None:
            due = max(due + 1 / fps, time.monotonic())
            time.sleep(max(due - time.monotonic(), 0.0))
        yield done


def play_yourself(env: VectorEnv, episodes: int, seed: int, fps: float | None, say: Say) -> list[EpisodeEnd]:
    """The keyboard acts; closing the window or Escape ends it."""
    import numpy as np

    from ludus.cli.keyboard import KeyboardWindow, Quit, keys_for
    from ludus.envs.facts import action_labels
    from ludus.play import episodes as play_episodes
    from ludus.types import ActResult

    labels = action_labels(env.id)
    keys = keys_for(env.action_space, labels)
    window = KeyboardWindow(keys, f"ludus · {env.id}", fps or min(env.info.render_fps, 30.0))

    def act(*_: object) -> ActResult:
        window.show(env.render())
        return ActResult(np.asarray(window.action())[None], None, {})

    ended: list[EpisodeEnd] = []
    say(keys.help(labels))
    try:
        for step in play_episodes(act, env, [seed], episodes):
            list(shown([step], ended, say))
            if step.ended:
                window.show(env.render(final=True))
    except Quit:
        pass
    finally:
        window.close()
    return ended


def render_mode(render: str | None, video: str | None, user: bool = False) -> str | None:
    """What the environment has to be made with."""
    if render not in (None, "human", "none"):
        raise ConfigError("--render", f"'{render}' is unknown", did_you_mean(render, ["human", "none"]))
    display = not sys.platform.startswith("linux") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if user and (video is not None or render is not None):
        raise ConfigError("--user", "cannot be combined with --video and --render", "choose one of them")
    if user and not display:
        raise ConfigError("--user", "there is no display", "play where there is a screen and a keyboard")
    if video is not None and render == "human":
        raise ConfigError("--render human", "cannot be combined with --video", "choose one of them")
    if render == "human" and not display:
        raise ConfigError("--render human", "there is no display", "record it instead: --video auto")
    if user or video is not None:
        return "rgb_array"
    return "human" if display and render != "none" else None


def video_path(run: RunFolder | None, video: str) -> Path:
    """`auto` is the run's own folder."""
    if video != "auto":
        path = Path(video)
    elif run is not None:
        path = run.videos / f"play_{time.strftime('%Y%m%d-%H%M%S')}.mp4"
    else:
        raise ConfigError("--video auto", "there is no run to put it into", "give a path")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
