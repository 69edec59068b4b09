"""`ludus play RUN`: watch a trained policy, record it, or play yourself."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ludus.cli.plugin import Plugin, load_plugins
from ludus.errors import ConfigError

if TYPE_CHECKING:
    from ludus.config.schema import ExperimentConfig
    from ludus.envs.vector import VectorEnv
    from ludus.experiment import Player
    from ludus.runs.store import RunFolder
    from ludus.types import Array

    Act = Callable[[Array, Any, Array], tuple[Array, Any]]


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
    plugin: Plugin = None,
    runs_dir: Annotated[Path, typer.Option(help="Where runs are.")] = Path("runs"),
) -> None:
    """Play episodes with the policy of a run; prints each return and, with --video, the file."""
    load_plugins(plugin)
    mode = render_mode(render, video, user)
    found, config, name = source(run, checkpoint, runs_dir, trained=not (random or user))
    from ludus.envs.make import make_vector
    from ludus.switches import quiet

    if not quiet():
        print(f"{name}, {'you play' if user else 'random actions'}" if random or user else name)
    first_seed = config.experiment.seed if seed is None else seed
    with make_vector(config.environment, num_envs=1, render_mode=mode, vectorization="sync") as env:
        if user:
            print(play_yourself(env, episodes, first_seed, fps))
            return
        act = random_policy(env, first_seed) if random else policy(load(found, name, env), deterministic)
        show = Show(env, act, episodes, first_seed, pace(fps if video is None else None, step))
        if video is None:
            show.run()
        else:
            record(show, video_path(found, video), fps)
    print(show.summary())


def source(
    reference: str, checkpoint: str | None, runs_dir: Path, *, trained: bool
) -> tuple[Any, ExperimentConfig, str]:
    """Run (if it is one), its config, and the name of what is played."""
    from ludus.runs.store import RunFolder

    if ":" in reference and not trained:
        from ludus.config.compose import load as compose

        return None, compose(reference).config, reference
    found = RunFolder.load(runs_dir, reference)
    step = f"/{checkpoint_name(found, checkpoint)}" if trained else ""
    return found, run_config(found), found.id + step


@dataclass(frozen=True)
class Step:
    """What one step was."""

    number: int
    action: Any
    reward: float
    total: float


@dataclass
class Show:
    """The episodes as a stream of frames, so that a recording never holds more than one."""

    env: VectorEnv
    act: Act
    episodes: int
    seed: int
    after: Callable[[Step], None] = lambda _: None
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Play without recording."""
        for _ in self.frames(recording=False):
            pass

    def frames(self, *, recording: bool = True) -> Iterator[Array]:
        """Play; while recording, yields every state including the last of each episode."""
        import numpy as np

        obs, state, first = self.env.reset([self.seed]), None, np.ones(1, bool)
        total, length = 0.0, 0
        while len(self.returns) < self.episodes:
            if recording and first[0]:
                yield self.env.render()
            action, state = self.act(obs, state, first)
            result = self.env.step(action)
            obs, first = result.obs, result.terminated | result.truncated
            reward = float(self.env.raw_reward[0])
            total, length = total + reward, length + 1
            self.after(Step(length, action[0], reward, total))
            if recording:
                yield self.env.render(final=bool(first[0]))
            if self.env.over(first)[0]:
                self._finish(total, length)
                total, length = 0.0, 0

    def summary(self) -> str:
        """Mean and deviation over the episodes."""
        import numpy as np

        if not self.returns:
            return "no episode was finished"
        mean, std, length = np.mean(self.returns), np.std(self.returns), np.mean(self.lengths)
        return f"mean {mean:,.1f} ± {std:,.1f} over {len(self.returns)} episodes, length {length:,.1f}"

    def _finish(self, total: float, length: int) -> None:
        self.returns.append(total)
        self.lengths.append(length)
        print(f"episode {len(self.returns):>3}   return {total:>10,.1f}   length {length:>6,}", flush=True)


def pace(fps: float | None, step: bool) -> Callable[[Step], None]:
    """What happens after every step: nothing, a pause, or a line and a wait for Enter (`q` ends the waiting)."""
    due = time.monotonic()
    waiting = step

    def after(done: Step) -> None:
        nonlocal due, waiting
        if step:
            print(f"step {done.number:>5}   action {done.action}   reward {done.reward:g}   return {done.total:g}")
        if waiting:
            answer = sys.stdin.readline()
            waiting = bool(answer) and answer.strip().lower() not in ("q", "quit")
        elif fps is not None:
            due = max(due + 1 / fps, time.monotonic())
            time.sleep(max(due - time.monotonic(), 0.0))

    return after


def play_yourself(env: VectorEnv, episodes: int, seed: int, fps: float | None) -> str:
    """The keyboard acts; closing the window or Escape ends it."""
    import numpy as np

    from ludus.cli.keyboard import KeyboardWindow, Quit, keys_for
    from ludus.envs.facts import action_labels

    labels = action_labels(env.id)
    keys = keys_for(env.action_space, labels)
    window = KeyboardWindow(keys, f"ludus · {env.id}", fps or min(env.info.render_fps, 30.0))
    show = Show(env, lambda *_: (np.asarray(window.action())[None], None), episodes, seed)
    print(keys.help(labels))
    try:
        for frame in show.frames():
            window.show(frame)
    except Quit:
        pass
    finally:
        window.close()
    return show.summary()


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


def checkpoint_name(run: RunFolder, checkpoint: str | None) -> str:
    """The name of the checkpoint that is asked for; the default is the best one, or else the last."""
    from ludus.runs.checkpoint import find, read_manifest

    if checkpoint and run.checkpoint and checkpoint != run.checkpoint:
        raise ConfigError("--checkpoint", f"says {checkpoint}, the reference {run.checkpoint}", "give one of them")
    return str(read_manifest(find(run.path, checkpoint or run.checkpoint))["name"])


def run_config(run: RunFolder) -> ExperimentConfig:
    """The config a run was started with."""
    from ludus.config.compose import parse
    from ludus.config.read import read_file

    return parse(read_file(run.config_path), str(run.config_path))


def load(run: RunFolder, name: str, env: VectorEnv) -> Player:
    """The policy of a checkpoint, `<run>/step=N`."""
    from ludus.session.loading import load_player
    from ludus.types import Spaces

    return load_player(run, name.rpartition("/")[2], Spaces(env.observation_space, env.action_space))


def policy(player: Player, deterministic: bool | None) -> Act:
    """Acts as in evaluation: same habit, observations normalised with what training learned."""
    algorithm, normalizer = player.algorithm, player.normalizer
    habits = (deterministic, player.config.training.evaluation.deterministic, algorithm.deterministic_evaluation)
    greedy = next(habit for habit in habits if habit is not None)

    def act(obs: Array, state: Any, first: Array) -> tuple[Array, Any]:
        seen = obs if normalizer is None else normalizer.apply(obs)
        state = algorithm.initial_state(1) if state is None else state
        result = algorithm.act(seen, state, first, deterministic=greedy)
        return result.action, result.state

    return act


def random_policy(env: VectorEnv, seed: int) -> Act:
    """Uniform random actions."""
    import numpy as np

    env.action_space.seed(seed)
    return lambda *_: (np.asarray(env.action_space.sample())[None], None)


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


def record(show: Show, path: Path, fps: float | None) -> None:
    """Stream the episodes into a file."""
    from ludus.runs.video import write_video

    count = write_video(path, show.frames(), fps or show.env.info.render_fps)
    print(f"video {path} ({count:,} frames)")
