"""`ludus play RUN`: watch a trained policy, record it, or play yourself."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ludus.cli.options import Checkpoint, Deterministic, EnvId, Plugin, RunsDir
from ludus.errors import ConfigError
from ludus.text import did_you_mean

if TYPE_CHECKING:
    from ludus.archive.store import RunFolder
    from ludus.config.schema import ExperimentConfig
    from ludus.envs.vector import VectorEnv
    from ludus.play import EpisodeEnd, PlayedStep
    from ludus.types import Array


_RUN = "Run id, unique prefix, @last or @best; add /@best, /@last or /step=N. Env:variant without a policy."


def play(
    run: Annotated[str, Argument(help=_RUN)],
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
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Play episodes with the policy of a run; prints each return and, with --video, the file."""
    mode = render_mode(render, video, user)
    found, config, name = source(run, checkpoint, runs_dir, env, plugin, trained=not (random or user))
    from ludus.envs.make import make_vector
    from ludus.play import episodes as play_episodes
    from ludus.play import random_policy
    from ludus.session.player import policy_in
    from ludus.terminal import quiet

    if not quiet():
        print(f"{name}, {'you play' if user else 'random actions'}" if random or user else name)
    first_seed = config.experiment.seed if seed is None else seed
    with make_vector(config.environment, num_envs=1, render_mode=mode, vectorization="sync") as made:
        if user:
            print(play_yourself(made, episodes, first_seed, fps))
            return
        if random or found is None:
            act = random_policy(made, first_seed)
        else:
            act, _ = policy_in(config, found, name.rpartition("/")[2], made, deterministic)
        path = None if video is None else video_path(found, video)
        steps = play_episodes(act, made, [first_seed], episodes, render=path is not None)
        print(performed(paced(steps, fps if path is None else None, step), path, fps or made.info.render_fps))


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
    step = f"/{checkpoint_name(found, checkpoint)}" if trained else ""
    return found, run_config(found, env), found.id + step


def performed(steps: Iterable[PlayedStep], path: Path | None, fps: float) -> str:
    """Play the episodes, before a spectator or into a video, and sum them up."""
    from ludus.archive.video import write_video

    ended: list[EpisodeEnd] = []
    if path is None:
        deque(shown(steps, ended), maxlen=0)
    else:
        print(f"video {path} ({write_video(path, shown(steps, ended), fps):,} frames)")
    return summary(ended)


def shown(steps: Iterable[PlayedStep], ended: list[EpisodeEnd]) -> Iterator[Array]:
    """The frames of an environment; finished episodes are printed and added to `ended`."""
    for step in steps:
        yield from step.frames
        for end in step.ended:
            ended.append(end)
            print(f"episode {len(ended):>3}   return {end.total:>10,.1f}   length {end.length:>6,}", flush=True)


def summary(ended: list[EpisodeEnd]) -> str:
    """Mean and deviation over the episodes."""
    import numpy as np

    if not ended:
        return "no episode was finished"
    returns = [end.total for end in ended]
    length = np.mean([end.length for end in ended])
    return f"mean {np.mean(returns):,.1f} ± {np.std(returns):,.1f} over {len(ended)} episodes, length {length:,.1f}"


def paced(steps: Iterable[PlayedStep], fps: float | None, step: bool) -> Iterator[PlayedStep]:
    """The steps with a pause after each, or with a line and a wait for Enter (`q` ends the waiting)."""
    due, waiting = time.monotonic(), step
    for done in steps:
        if step:
            facts = f"action {done.action[0]}   reward {done.reward[0]:g}   return {done.total[0]:g}"
            print(f"step {done.length[0]:>5}   {facts}")
        if waiting:
            answer = sys.stdin.readline()
            waiting = bool(answer) and answer.strip().lower() not in ("q", "quit")
        elif fps is not None:
            due = max(due + 1 / fps, time.monotonic())
            time.sleep(max(due - time.monotonic(), 0.0))
        yield done


def play_yourself(env: VectorEnv, episodes: int, seed: int, fps: float | None) -> str:
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
    print(keys.help(labels))
    try:
        for step in play_episodes(act, env, [seed], episodes):
            list(shown([step], ended))
            if step.ended:
                window.show(env.render(final=True))
    except Quit:
        pass
    finally:
        window.close()
    return summary(ended)


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
