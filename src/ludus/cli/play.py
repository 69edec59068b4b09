"""`ludus play RUN`: watch a trained policy, record it, or play yourself."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ludus.cli.plugin import Plugin, load_plugins
from ludus.errors import ConfigError

if TYPE_CHECKING:
    from ludus.config.schema import ExperimentConfig
    from ludus.envs.vector import VectorEnv
    from ludus.play import Act, EpisodeEnd, PlayedStep
    from ludus.runs.store import RunFolder
    from ludus.types import Array


def play(
    run: Annotated[
        str,
        typer.Argument(
            help="Run id, unique prefix, @last or @best; add /@best, /@last or /step=N. Env:variant without a policy."
        ),
    ],
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 5,
    video: Annotated[str | None, typer.Option(metavar="PATH|auto", help="Record an MP4; auto: into the run.")] = None,
    render: Annotated[str | None, typer.Option(metavar="human|none", help="Default: human with a display.")] = None,
    deterministic: Annotated[bool | None, typer.Option("--deterministic/--stochastic", help="Greedy or not.")] = None,
    random: Annotated[bool, typer.Option("--random", help="Random actions; needs no checkpoint.")] = False,
    user: Annotated[bool, typer.Option("--user", help="Play with the keyboard; needs a display.")] = False,
    fps: Annotated[float | None, typer.Option(min=0.1, help="Steps per second at most, and of a video.")] = None,
    step: Annotated[bool, typer.Option("--step", help="Wait for Enter after every step.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the environment; default: the run's.")] = None,
    checkpoint: Annotated[str | None, typer.Option(metavar="best|last|step=N", help="Default: best, or last.")] = None,
    env: Annotated[
        str | None, typer.Option(metavar="ID", help="Environment for a run that learned without one.")
    ] = None,
    plugin: Plugin = None,
    runs_dir: Annotated[Path, typer.Option(help="Where runs are.")] = Path("runs"),
) -> None:
    """Play episodes with the policy of a run; prints each return and, with --video, the file."""
    load_plugins(plugin)
    mode = render_mode(render, video, user)
    found, config, name = source(run, checkpoint, runs_dir, env, trained=not (random or user))
    from ludus.envs.make import make_vector
    from ludus.terminal import quiet

    if not quiet():
        print(f"{name}, {'you play' if user else 'random actions'}" if random or user else name)
    first_seed = config.experiment.seed if seed is None else seed
    with make_vector(config.environment, num_envs=1, render_mode=mode, vectorization="sync") as made:
        if user:
            print(play_yourself(made, episodes, first_seed, fps))
            return
        act = policy(None if random else found, name.rpartition("/")[2], made, deterministic, first_seed)
        path = None if video is None else video_path(found, video)
        print(summary(performed(act, made, first_seed, episodes, path, fps, step)))


def source(
    reference: str, checkpoint: str | None, runs_dir: Path, env: str | None, *, trained: bool
) -> tuple[RunFolder | None, ExperimentConfig, str]:
    """Run (if it is one), its config, and the name of what is played."""
    from ludus.runs.store import RunFolder
    from ludus.session.player import checkpoint_name, run_config

    if ":" in reference and not trained:
        from ludus.config.compose import load as compose

        return None, compose(reference).config, reference
    found = RunFolder.load(runs_dir, reference)
    step = f"/{checkpoint_name(found, checkpoint)}" if trained else ""
    return found, run_config(found, env), found.id + step


def policy(run: RunFolder | None, step: str, env: VectorEnv, deterministic: bool | None, seed: int) -> Act:
    """The policy of a checkpoint; it acts as in evaluation unless `deterministic` says how."""
    from ludus.play import greedy, policy_of, random_policy
    from ludus.session.player import load_player
    from ludus.types import Spaces

    if run is None:
        return random_policy(env, seed)
    player = load_player(run, step, Spaces(env.observation_space, env.action_space))
    habit = greedy(player.algorithm, deterministic, player.config.training.evaluation.deterministic)
    return policy_of(player.algorithm, player.normalizer, deterministic=habit)


def performed(
    act: Act, env: VectorEnv, seed: int, count: int, video: Path | None, fps: float | None, step: bool
) -> list[EpisodeEnd]:
    """Play the episodes, at the speed of a spectator or into a video."""
    from ludus.play import episodes
    from ludus.runs.video import write_video

    ended: list[EpisodeEnd] = []
    steps = episodes(act, env, [seed], count, render=video is not None)
    if video is None:
        deque(shown(paced(steps, fps, step), ended), maxlen=0)
    else:
        frames = write_video(video, shown(paced(steps, None, step), ended), fps or env.info.render_fps)
        print(f"video {video} ({frames:,} frames)")
    return ended


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
    from ludus.text import did_you_mean

    if render not in (None, "human", "none"):
        raise ConfigError("--render", f"'{render}' is unknown", did_you_mean(render, ["human", "none"]))
    display = not sys.platform.startswith("linux") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if user:
        if video is not None or render is not None:
            raise ConfigError("--user", "cannot be combined with --video and --render", "choose one of them")
        if not display:
            raise ConfigError("--user", "there is no display", "play where there is a screen and a keyboard")
        return "rgb_array"
    if video is not None:
        if render == "human":
            raise ConfigError("--render human", "cannot be combined with --video", "choose one of them")
        return "rgb_array"
    if render == "human" and not display:
        raise ConfigError("--render human", "there is no display", "record it instead: --video auto")
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
