"""`ludus play`: returns, videos to the last frame, and refusals in one line."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.archive import checkpoint
from ludus.archive.store import RunFolder
from ludus.cli.play import play
from ludus.config.compose import to_yaml
from ludus.errors import ConfigError, DataError
from ludus.experiment import build
from ludus.run import Run
from ludus.session import player
from support import config as small_config


@pytest.fixture(autouse=True)
def _headless(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One untrained CartPole run with two checkpoints, the first one best."""
    root = tmp_path_factory.mktemp("play") / "runs"
    config = small_config(environment={"normalize_obs": "rolling"})
    run = RunFolder.create(root, "cart", config_yaml=to_yaml(config))
    built: Run = build(config)
    parts = {name: part.state_dict() for name, part in built.algorithm.state().items()}
    normalizer = built.algorithm.collector.normalizer.state_dict()
    built.algorithm.collector.close()
    for step, best in ((128, True), (256, False)):
        checkpoint.save(
            run.path, {"algorithm": parts, "normalizer": normalizer, "step": step}, name=f"step={step}", best=best
        )
    return root


def _lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_each_episode_and_the_mean_are_printed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play("@last", episodes=3, runs_dir=runs)
    lines = _lines(capsys)
    assert lines[0].endswith("/step=128")  # the best one
    returns = [float(line.split()[3]) for line in lines[1:4]]
    lengths = [float(line.split()[5]) for line in lines[1:4]]
    assert returns == lengths
    assert (
        lines[4]
        == f"mean {np.mean(returns):.1f} ± {np.std(returns):.1f} over 3 episodes, length {np.mean(lengths):.1f}"
    )


def test_same_seed_same_episodes_and_another_seed_others(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = []
    for seed in (1, 1, 2):
        play("@last", episodes=4, seed=seed, random=True, runs_dir=runs)
        seen.append(_lines(capsys))
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize(
    ("reference", "option"), [("cart/@last", None), ("cart", "last"), ("cart/step=256", "step=256")]
)
def test_checkpoints_are_chosen(
    runs: Path, capsys: pytest.CaptureFixture[str], reference: str, option: str | None
) -> None:
    play(reference, episodes=1, checkpoint=option, runs_dir=runs)
    assert _lines(capsys)[0].endswith("/step=256")


def test_random_actions_need_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunFolder.create(tmp_path, "bare", config_yaml=to_yaml(small_config()))
    play("bare", episodes=2, random=True, runs_dir=tmp_path)
    assert "random actions" in _lines(capsys)[0]
    with pytest.raises(DataError, match="no checkpoint"):
        play("bare", episodes=2, runs_dir=tmp_path)


def test_a_video_holds_every_state_including_the_last(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    av = pytest.importorskip("av")
    path = tmp_path / "new" / "a.mp4"
    play("@last", episodes=2, video=str(path), random=True, runs_dir=runs)
    lines = _lines(capsys)
    steps = sum(int(line.split()[5]) for line in lines[1:3])
    assert lines[3] == f"video {path} ({steps + 2} frames)"
    with av.open(str(path)) as container:
        assert sum(1 for _ in container.decode(video=0)) == steps + 2
        assert float(container.streams.video[0].average_rate) == 50.0


def test_auto_puts_the_video_into_the_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("av")
    play("@last", episodes=1, video="auto", random=True, runs_dir=runs)
    (video,) = (RunFolder.load(runs, "@last").videos).glob("play_*.mp4")
    assert str(video) in "\n".join(_lines(capsys))


def test_a_run_that_trains_on_replaces_its_checkpoints(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "runs"
    shutil.copytree(runs, root, symlinks=True)
    load, pruned = player.policy_in, []

    def policy_in(config: Any, run: RunFolder, step: str, *rest: Any) -> Any:
        if not pruned:
            shutil.rmtree(run.path / "checkpoints" / step)
        pruned.append(step)
        return load(config, run, step, *rest)

    monkeypatch.setattr(player, "policy_in", policy_in)
    play("@last", episodes=1, runs_dir=root)
    assert pruned == ["step=128", "step=256"] and _lines(capsys)[0].endswith("/step=256")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"render": "human"}, "there is no display; record it instead"),
        ({"render": "humn"}, "did you mean 'human'"),
        ({"render": "human", "video": "auto"}, "cannot be combined"),
        ({"checkpoint": "step=3"}, "no such checkpoint"),
        ({"run": "cart/@best", "checkpoint": "last"}, "give one of them"),
        ({"run": "crat"}, "no such run"),
        ({"user": True}, "--user: there is no display"),
        ({"user": True, "video": "auto"}, "cannot be combined"),
        ({"run": "CartPole-v1:ppo", "random": True, "video": "auto"}, "no run to put it into"),
    ],
)
def test_refusals(runs: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        play(**{"run": "@last", "runs_dir": runs, **options})


def test_a_variant_needs_no_run_without_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play("CartPole-v1:ppo", episodes=1, random=True, runs_dir=tmp_path)
    assert _lines(capsys)[0] == "CartPole-v1:ppo, random actions"
    with pytest.raises(ConfigError, match="cannot be the name of a run"):
        play("CartPole-v1:ppo", episodes=1, runs_dir=tmp_path)


@pytest.mark.parametrize("name", ["LUDUS_QUIET", "VIBES_QUIET", "VIBES_DISABLE_CHECKPOINT_LOGS"])
def test_quiet_leaves_out_which_checkpoint_it_is(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    play("@last", episodes=1, runs_dir=runs)
    assert _lines(capsys)[0].startswith("episode   1")


def test_fps_slows_down_and_is_the_speed_of_a_video(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = time.perf_counter()
    play("@last", episodes=1, random=True, seed=3, fps=100, runs_dir=runs)
    steps = int(_lines(capsys)[1].split()[5])
    assert time.perf_counter() - begin >= 0.9 * steps / 100
    av = pytest.importorskip("av")
    play("@last", episodes=1, random=True, fps=10, video=str(tmp_path / "slow.mp4"), runs_dir=runs)
    with av.open(str(tmp_path / "slow.mp4")) as container:
        assert float(container.streams.video[0].average_rate) == 10.0


def test_step_by_step(runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Keyboard:
        def readline(self) -> str:
            asked.append("?")
            return "\n" if len(asked) < 4 else "q\n"

    monkeypatch.setattr(sys, "stdin", Keyboard())
    play("@last", episodes=1, random=True, seed=3, step=True, runs_dir=runs)
    lines = _lines(capsys)
    assert len(asked) == 4  # then it runs on
    assert re.fullmatch(r"step     1   action [01]   reward 1   return 1", lines[1])
    steps = [line for line in lines if line.startswith("step")]
    assert steps[-1].endswith(f"return {len(steps)}")


def test_step_by_step_does_not_wait_for_nobody(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    play("@last", episodes=1, random=True, step=True, runs_dir=runs)
    assert "mean" in _lines(capsys)[-1]


def test_the_command_is_wired_and_its_help_is_light() -> None:
    code = (
        "import sys; from ludus.cli import run;\n"
        "assert run(['play', '--help']) == 0; assert not {'torch', 'gymnasium', 'numpy', 'av'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--stochastic" in done.stdout
