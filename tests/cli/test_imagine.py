"""`ludus imagine`: numbers and pictures of real tiny runs, and refusals in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus import cli
from ludus.archive import checkpoint
from ludus.archive.store import RunFolder
from ludus.cli.imagine import imagine
from ludus.config.compose import to_yaml
from ludus.errors import ConfigError
from ludus.imagination import facts
from ludus.play import EpisodeEnd, PlayedStep
from ludus.reports.report import write_report
from ludus.session.imagine import imagined, parts, rows
from support import build
from support import config as small_config

TINY = {"size": "tiny", "batch_size": 2, "sequence_length": 4, "train_ratio": 1, "learning_starts": 32}
RUNS: dict[str, dict[str, Any]] = {
    "cart": {"algorithm": {"name": "dreamer", **TINY}},
    "look": {
        "algorithm": {"name": "dreamer", **TINY},
        "env": "LookAndFeel-v0",
        "environment": {"kwargs": {"length": 8}},
    },
    "plan": {
        "algorithm": {
            "name": "planet",
            **TINY,
            "representation": "identity",
            "horizon": 2,
            "candidates": 4,
            "elites": 2,
        },
        "env": "Pendulum-v1",
        "environment": {"max_episode_steps": 12, "normalize_obs": "static", "normalize_reward": False},
    },
    "latent": {
        "algorithm": {"name": "tdmpc", "size": "tiny", "batch_size": 4, "learning_starts": 32, "update_ratio": 0.1,
                      "candidates": 8, "policy_candidates": 2, "elites": 2, "rounds": 2},
        "env": "Pendulum-v1",
        "environment": {"max_episode_steps": 12},
    },
    "ppo": {"algorithm": "ppo"},
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of a few updates, each with two checkpoints, the first one best."""
    root = tmp_path_factory.mktemp("imagine") / "runs"
    for name, sections in RUNS.items():
        config = small_config(**{**sections, "training": {"total_timesteps": 64}})
        built = build(config)
        run = RunFolder.create(root, name, config_yaml=to_yaml(config))
        built.run()
        state = {"algorithm": {name: part.state_dict() for name, part in built.algorithm.state().items()}}
        if built.normalizer is not None:
            state["normalizer"] = built.normalizer.state_dict()
        built.close()
        for step, best in ((32, True), (64, False)):
            checkpoint.save(run.path, {**state, "step": step}, name=f"step={step}", best=best)
    return root


def told(runs: Path, name: str, step: int = 32) -> dict[str, Any]:
    """What the command wrote into the folder of a run."""
    folder = RunFolder.load(runs, name).imagination / f"step={step}"
    found: dict[str, Any] = json.loads((folder / "imagine.json").read_text())
    assert sorted([*found["files"], "imagine.json"]) == sorted(path.name for path in folder.iterdir())
    return found


def test_vectors_are_plotted_and_judged(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imagine("cart", episodes=3, context=2, horizon=4, runs_dir=runs)
    out = capsys.readouterr().out
    found = told(runs, "cart")
    assert found["checkpoint"] == "step=32" and found["files"] == ["predictions.png"]
    assert [row["ahead"] for row in found["errors"]["vector"]] == [0, 1, 2, 4]
    assert all(row["error"] > 0 for row in found["errors"]["vector"])
    rows = found["rows"]
    assert found["episodes"] == 3 and rows["imagined"] == rows["observed"] - 3 * 2
    ends = sum(round(row["rows"] * (row["observed"] or 0)) for row in found["ends"]["observed"])
    assert ends == 3  # every pole fell, and the row where it did counts
    assert found["reward"]["imagined"]["correlation"] is None  # always 1
    assert found["value"]["imagined"]["mean_absolute_error"] > 0
    assert found["decoder"] and "no decoder" not in out
    for words in ("/step=32", "steps ahead: vector", "if nothing changed", "reward, imagined", "predictions.png"):
        assert words in out, words
    picture = RunFolder.load(runs, "cart").imagination / "step=32" / "predictions.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_same_seed_imagines_the_same(runs: Path) -> None:
    seen = [facts(imagined(RunFolder.load(runs, "cart"), "step=64", 2, 2, None, seed)) for seed in (1, 1, 2)]
    assert seen[0] == seen[1] != seen[2]


def test_json_and_another_folder(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imagine("cart/@last", episodes=1, context=2, out=tmp_path / "out", json=True, runs_dir=runs)
    found = json.loads(capsys.readouterr().out)
    assert found["checkpoint"] == "step=64" and found["folder"] == str(tmp_path / "out")
    assert found["horizon"] == min(found["rows"]["observed"] - 2, 45)  # no longer than the episode
    assert (tmp_path / "out" / "predictions.png").exists()
    assert not (RunFolder.load(runs, "cart").imagination / "step=64").exists()


def test_every_image_gets_a_video_of_three_rows(runs: Path) -> None:
    av = pytest.importorskip("av")
    imagine("look", episodes=2, context=3, runs_dir=runs)
    found = told(runs, "look")
    assert found["files"] == ["camera.mp4", "predictions.png"]
    assert set(found["errors"]) == {"camera", "vector"} and found["horizon"] == 6
    with av.open(str(RunFolder.load(runs, "look").imagination / "step=32" / "camera.mp4")) as container:
        frames = [frame.to_ndarray(format="rgb24").astype(int) for frame in container.decode(video=0)]
    assert len(frames) == 9
    assert frames[0].shape[0] > 3 * 100  # enlarged

    def orange(frame: np.ndarray) -> int:
        """Rows of the page with a long line in the colour of predictions."""
        red, green, blue = np.moveaxis(frame, -1, 0)
        return int((((red > 190) & (green > 120) & (blue < 70)).sum(1) > 100).sum())

    assert [orange(frame) > 0 for frame in frames] == [False] * 3 + [True] * 6


def test_planning_with_observations_as_states(runs: Path, tmp_path: Path) -> None:
    imagine("plan", episodes=1, context=2, horizon=3, out=tmp_path, runs_dir=runs)
    found = json.loads((tmp_path / "imagine.json").read_text())
    assert found["value"] is None and found["rows"] == {"observed": 13, "imagined": 11}
    assert found["errors"]["vector"][0]["error"] < 1e-9 < found["errors"]["vector"][1]["error"]
    assert found["errors"]["vector"][1]["unchanged"] < 1  # normalised, as the model sees them


def test_a_model_without_a_decoder_says_so(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imagine("latent", episodes=2, context=2, horizon=4, runs_dir=runs)
    assert "has no decoder" in capsys.readouterr().out
    found = told(runs, "latent")
    assert found["files"] == ["predictions.png"] and found["decoder"] is False
    assert [row["ahead"] for row in found["errors"]["latent"]] == [0, 1, 2, 4]
    assert found["errors"]["latent"][0]["error"] == 0 < found["errors"]["latent"][1]["error"]
    assert found["reward"]["imagined"]["mean_absolute_error"] > 0 and found["value"]["observed"]["rows"] == 24
    assert sum(row["rows"] for row in found["ends"]["imagined"]) == 22
    folder = RunFolder.load(runs, "latent").path
    assert "has no decoder" in write_report(folder).read_text()
    assert "has no decoder" in (folder / "report.md").read_text()


def test_the_report_shows_it(runs: Path) -> None:
    imagine("look", episodes=1, context=3, horizon=2, seed=5, runs_dir=runs)
    folder = RunFolder.load(runs, "look").path
    page = write_report(folder).read_text()
    assert 'src="imagination/step%3D32/camera.mp4"' in page
    assert 'src="imagination/step%3D32/predictions.png"' in page
    assert "steps ahead: camera" in page and "img-src 'self' file:" in page
    markdown = (folder / "report.md").read_text()
    assert "(imagination/step%3D32/camera.mp4)" in markdown and "| steps ahead: vector | rows |" in markdown
    (folder / "imagination" / "step=32" / "imagine.json").write_text('{"errors": [1], "reward": {"observed": 3}}')
    assert "camera.mp4" in write_report(folder).read_text()
    (folder / "imagination" / "step=64").mkdir()
    (folder / "imagination" / "step=64" / "imagine.json").symlink_to("nowhere")
    assert "Imagination of step=32" in write_report(folder).read_text()


def step(t: int, *, terminated: bool = False, truncated: bool = False, over: bool = False) -> PlayedStep:
    """A step of one environment that counts its steps and takes actions between 0 and 4."""
    done = terminated or truncated
    ends = np.array([terminated]), np.array([truncated])
    return PlayedStep(
        t=t,
        first=np.array([False]),
        obs=np.array([[t]], np.float32),
        action=np.array([[t % 5]], np.float32),
        info={},
        reward=np.array([100.0 * t], np.float32),
        learned=np.array([t], np.float32),
        terminated=ends[0],
        truncated=ends[1],
        final_obs=np.array([[t + 0.5]], np.float32) if done else None,
        total=np.zeros(1),
        length=np.zeros(1, np.int64),
        ended=[EpisodeEnd(0, 0.0, 1)] if over else [],
        frames=[],
    )


def test_rows_end_with_the_true_last_observation() -> None:
    found = rows([step(0), step(1), step(2, terminated=True)], 0)
    assert found.obs.ravel().tolist() == [0, 1, 2, 2.5]
    assert found.reward.tolist() == [0, 0, 1, 2] and found.action.ravel().tolist() == [0, 0, 1, 2]
    assert found.terminal.tolist() == [False, False, False, True]
    assert rows([step(0), step(1), step(2, truncated=True)], 0).terminal.tolist() == [False] * 4
    unfinished = rows([step(0), step(1), step(2)], 0)
    assert unfinished.obs.ravel().tolist() == [0, 1, 2] and unfinished.reward.tolist() == [0, 0, 1]


def test_one_game_counts_life_by_life_and_lost_episodes_do_not() -> None:
    life, lost, end = step(1, terminated=True), step(3, truncated=True), step(6, truncated=True, over=True)
    steps = [step(0), life, step(2), lost, step(4), step(5), end, step(7), step(8, terminated=True, over=True)]
    assert [[one.t for one in part] for part in parts(steps, 0)] == [[0, 1], [4, 5, 6]]
    assert [[one.t for one in part] for part in parts(steps[:6], 0)] == [[0, 1], [4, 5]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["crat"], "there is no such run"),
        (["ppo"], "ppo learns no world model; train one of dreamer, planet, tdmpc, world_models"),
        (["cart", "--context", "0"], "'--context'"),
        (["cart", "--horizon", "0"], "'--horizon'"),
        (["cart", "--episodes", "99"], "'--episodes'"),
        (
            ["look", "--context", "3", "--horizon", "7"],
            "--horizon 7: the longest of 4 episodes has 9 observations; use at",
        ),
        (["look", "--context", "9"], "--context 9: the longest of 4 episodes has 9 observations; use 8"),
        (["cart/@best", "--checkpoint", "last"], "give one of them"),
        (["cart", "--out", __file__], "is not a folder"),
    ],
)
def test_refusals_are_one_line(runs: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["imagine", *words, "--runs-dir", str(runs)])
    captured = capsys.readouterr()
    assert end.value.code == 2 and captured.out == ""
    assert message in captured.err and captured.err.count("\n") == 1


def test_an_algorithm_without_a_world_model_is_refused_before_it_plays(runs: Path) -> None:
    with pytest.raises(ConfigError, match="world model"):
        imagine("ppo", runs_dir=runs)
    assert not RunFolder.load(runs, "ppo").imagination.exists()
