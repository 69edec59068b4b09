"""The command line around configurations: fast, lazy, one line per mistake (A01-A10, A17-A21, DESIGN 8)."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml

import ludus
from ludus import cli
from ludus.cli import commands
from ludus.cli import job as job_module
from ludus.config.compose import config_hash, load, parse
from ludus.errors import EnvironmentFailed

HEAVY = ("torch", "gymnasium", "hydra", "omegaconf", "pydantic", "rich", "yaml", "numpy")


@pytest.fixture
def ludus_(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(job_module, "debugger_attached", lambda: False)

    def run(*args: str) -> types.SimpleNamespace:
        with pytest.raises(SystemExit) as stop:
            cli.main(args)
        captured = capsys.readouterr()
        return types.SimpleNamespace(code=stop.value.code, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Stands in for session.train and remembers what it was given."""
    calls: list[Any] = []

    def train(resolved, *, runs_dir, plugins, init_from, debug):
        calls.append(types.SimpleNamespace(resolved=resolved, runs_dir=runs_dir, init_from=init_from, debug=debug))
        return types.SimpleNamespace(interrupted=None, folder=runs_dir / f"run-{len(calls)}")

    monkeypatch.setattr("ludus.session.train.train", train)
    return calls


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("args", "allowed"),
    [
        (["--help"], []),
        (["--version"], []),
        (["train", "--help"], ["pydantic"]),  # typer's own
        (["config", "--help"], ["pydantic"]),
        (["play", "--help"], ["pydantic"]),
    ],
)
def test_help_imports_nothing_heavy(args, allowed):
    code = f"""
import sys
from ludus.cli import main
try:
    main({args!r})
except SystemExit as stop:
    print([name for name in {HEAVY!r} if name in sys.modules and name not in {allowed!r}], stop.code)
"""
    result = python(code)
    assert result.stdout.splitlines()[-1] == "[] 0", result.stdout + result.stderr


def test_listing_does_not_import_torch():
    code = "import sys\nfrom ludus.cli import main\ntry: main(['train', '--list-envs'])\nexcept SystemExit: pass\n"
    result = python(code + "print([name for name in ('torch', 'gymnasium', 'hydra') if name in sys.modules])")
    assert result.stdout.splitlines()[-1] == "[]" and "CartPole-v1:ppo" in result.stdout


def test_version_and_bare_call(ludus_):
    assert ludus_("--version").out.strip() == f"ludus {ludus.__version__}"
    bare = ludus_()
    assert bare.code == 0 and all(name in bare.out for name in commands.COMMANDS)
    group = ludus_("config")
    assert group.code == 0 and "validate" in group.out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["trian"], "No such command 'trian'"),
        (["train", "--nope"], "No such option"),
        (["train", "--seed"], "--seed"),
        (["train", "CartPole-v1:ppo", "algoritm.lr=1"], "did you mean 'algorithm'?"),
        (["train", "CartPole-v1:ppo", "algorithm.lr=-1"], "algorithm.lr: must start above 0"),
        (["train", "CartPole-v1:ppo", "--override", "environment.num_envs=0"], "environment.num_envs"),
        (["train", "CartPole-v1:ppo", "Acrobot-v1:ppo"], "a second spec"),
        (["train", "CartPole-v1:ppo", "--config_id", "Acrobot-v1:ppo"], "both name what to train"),
        (["train", "CartPole-v1:ppo", "--seed", "1,x"], "whole numbers"),
        (["train", "CartPole-v1:ppo", "--seed", "1,1"], "different"),
        (["train", "CartPole-v1:ppo", "--seed", "1", "experiment.seed=2"], "both set"),
        (["train", "CartPole-v1:ppo", "--max-timesteps", "abc"], "training.total_timesteps"),
        (["train", "CartPole-v1:ppo", "--max-timesteps", "5", "--total-timesteps", "6"], "both set"),
        (["train", "CartPole-v1:ppo", "--cfg", "hydra"], "--cfg job"),
        (["train", "CartPole-v1:ppo", "--cfg", "job", "--package", "algoritm"], "did you mean 'algorithm'?"),
        (["train", "CartPole-v1:ppo", "--plugin", "none.py"], "not a Python file"),
        (
            ["train", "Nowhere-v1:ppo"],
            "'Nowhere-v1' is unknown; add --import PACKAGE for the package that registers it",
        ),
        (["train", "CartPoel-v1:ppo"], "did you mean 'CartPole-v1'?"),
        (["train", "+experiment=nothing"], "no config 'experiment/nothing'"),
        (["train", "--config", "none.yaml"], "no such file"),
        (["config", "show", "CartPole-v1:ppo", "sed=1"], "did you mean 'seed'?"),
    ],
)
def test_mistakes_are_one_line_and_exit_2_and_leave_nothing(ludus_, runs, tmp_path, args, words):
    result = ludus_(*args)
    assert result.code == 2 and result.out == ""
    assert result.err.startswith("error: ") and result.err.count("\n") == 1 and words in result.err
    assert not runs and not list(tmp_path.iterdir())


def test_debug_shows_the_traceback_too(ludus_):
    for args in (
        ["config", "show", "CartPole-v1:ppo", "sed=1", "--debug"],
        ["train", "CartPole-v1:ppo", "sed=1", "--debug"],
    ):
        result = ludus_(*args)
        assert result.code == 2 and "Traceback" in result.err and result.err.splitlines()[-1].startswith("error: ")


def test_an_interrupt_is_130(ludus_, monkeypatch, runs):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("ludus.session.train.train", interrupted)
    assert ludus_("train", "CartPole-v1:ppo", "-q").code == 130


def test_what_a_run_fails_with_is_the_exit_code(ludus_, monkeypatch, runs):
    def dies(*args, **kwargs):
        raise EnvironmentFailed("CartPole-v1", "environment 3 died", "try on_worker_death=restart")

    monkeypatch.setattr("ludus.session.train.train", dies)
    result = ludus_("train", "CartPole-v1:ppo", "-q")
    assert result.code == 4 and result.err == "error: CartPole-v1: environment 3 died; try on_worker_death=restart\n"


def test_train_hands_over_what_was_asked(ludus_, runs):
    result = ludus_("train", "CartPole-v1:ppo", "algorithm.lr=1e-3", "~algorithm.clip", "-q", "--runs-dir", "elsewhere",
                    "--max-timesteps", "5e3", "--tag", "a.b", "--tag", "it's", "--override", "policy_lr=1e-3",
                    "--env-kwargs", "sutton_barto_reward=true")  # fmt: skip
    assert result.code == 0, result.err
    (call,) = runs
    config = call.resolved.config
    assert call.runs_dir == Path("elsewhere").absolute()
    assert config.algorithm.config.lr.start == 1e-3 and config.algorithm.config.clip.start == 0.2
    assert config.training.total_timesteps == 5_000 and config.experiment.tags == ("a.b", "it's")
    assert config.environment.kwargs == {"sutton_barto_reward": True}


@pytest.mark.parametrize(
    "args",
    [
        ["CartPole-v1:ppo"],
        ["--config_id", "CartPole-v1:ppo"],
        ["+experiment=CartPole-v1:ppo"],
        ["--config", str(Path(ludus.__file__).parent / "configs/environments/CartPole-v1.yaml:ppo")],
    ],
)
def test_every_way_to_name_it_is_the_same_run(ludus_, runs, args):
    ludus_("train", "-q", *args)
    assert config_hash(runs[0].resolved.config) == config_hash(load("CartPole-v1:ppo").config)


def test_a_bare_call_trains_the_bandit(ludus_, runs):
    ludus_("train", "-q", "seed=3")
    assert runs[0].resolved.spec == "Bandit-v0:ppo" and runs[0].resolved.config.experiment.seed == 3


def test_seeds_are_runs_of_their_own(ludus_, runs):
    ludus_("train", "CartPole-v1:ppo", "-q", "--seed", "1,2,3")
    assert [call.resolved.config.experiment.seed for call in runs] == [1, 2, 3]


def test_cfg_job_prints_the_config_and_trains_nothing(ludus_, runs, tmp_path):
    result = ludus_("train", "CartPole-v1:ppo", "seed=5", "--cfg", "job", "--package", "_global_")
    assert parse(yaml.safe_load(result.out), "out") == load("CartPole-v1:ppo", ["seed=5"]).config
    part = ludus_("train", "CartPole-v1:ppo", "--cfg", "job", "--package", "training.evaluation")
    assert yaml.safe_load(part.out)["episodes"] == 20
    assert not runs and not list(tmp_path.iterdir())


def test_listing(ludus_):
    everything, some = ludus_("train", "--list-envs"), ludus_("train", "--list-envs", "CartPole")
    assert everything.code == some.code == 0
    assert "Bandit-v0:ppo" in everything.out and "Bandit-v0" not in some.out and "CartPole-v1:ppo " in some.out


def test_a_name_without_variant_lists_the_variants(ludus_, runs):
    result = ludus_("train", "CartPole")
    assert result.code == 2 and "CartPole-v1:ppo " in result.out and result.err.count("\n") == 1 and not runs


@pytest.mark.parametrize(("answer", "trains"), [("", True), ("y", True), ("n", False), (None, False)])
def test_the_prompt_is_for_people_only(ludus_, runs, monkeypatch, answer, trains):
    def reply(prompt):
        assert prompt == "Start training? [Y/n] "
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", reply)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    ludus_("train", "CartPole-v1:ppo")
    assert bool(runs) is trains
    ludus_("train", "CartPole-v1:ppo", "-q")
    assert len(runs) == trains + 1


def test_without_a_terminal_nothing_is_asked(ludus_, runs, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("asked"))
    ludus_("train", "CartPole-v1:ppo")
    assert runs


@pytest.mark.parametrize("spec", ["CartPole-v1:ppo", "CartPole-v1:reinforce"])
def test_a_debugger_makes_it_small(ludus_, runs, monkeypatch, spec):
    monkeypatch.setattr(job_module, "debugger_attached", lambda: True)
    result = ludus_("train", spec, "-q")
    config = runs[0].resolved.config
    assert "debugger attached" in result.err
    assert config.environment.num_envs == 1 and config.environment.vectorization == "sync"
    config.algorithm.config.check(1)


def test_a_debugger_is_noticed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import ludus.cli.job as t; print('attached', t.debugger_attached())")
    traced = "import sys; sys.settrace(lambda *a: None); "
    assert python(script.read_text()).stdout == "attached False\n"
    assert python(traced + script.read_text()).stdout == "attached True\n"
    pdb = [sys.executable, "-m", "pdb", "-c", "c", str(script)]
    result = subprocess.run(pdb, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert "attached True" in result.stdout


def test_a_plugin_registers_parts(ludus_, runs, tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from ludus.config.model import Model\nfrom ludus.registry import ALGORITHMS\n"
        "class MineConfig(Model):\n    x: int = 1\n    '''X.'''\n"
        "@ALGORITHMS.register('mine_of_the_test')\nclass Mine:\n    Config = MineConfig\n"
    )
    result = ludus_(
        "train", "CartPole-v1:ppo", "algorithm={name: mine_of_the_test, x: 2}", "-q", "--plugin", str(plugin)
    )
    from ludus.registry import ALGORITHMS

    ALGORITHMS._classes.pop("mine_of_the_test")
    assert result.code == 0, result.err
    assert runs[0].resolved.config.algorithm.config.x == 2
    plugin.write_text("def broken(:\n")
    assert "mine.py:1" in ludus_("train", "CartPole-v1:ppo", "-q", "--plugin", str(plugin)).err


def test_config_show_and_origins(ludus_):
    shown = ludus_("config", "show", "CartPole-v1:ppo", "seed=4")
    assert yaml.safe_load(shown.out)["experiment"]["seed"] == 4
    origins = ludus_("config", "show", "CartPole-v1:ppo", "seed=4", "--origin").out
    assert any(line.split() == ["experiment.seed", "4", "seed=4"] for line in origins.splitlines())


def test_config_validate(ludus_, tmp_path):
    everything = ludus_("config", "validate")
    assert everything.code == 0 and "CartPole-v1:ppo" in everything.out, everything.err
    (tmp_path / "bad.yaml").write_text("extends: CartPole-v1:ppo\nbatch_size: 100\n")
    result = ludus_("config", "validate", "CartPole-v1:ppo", "bad.yaml", "CartPole-v1:pop")
    assert result.code == 2 and result.err.count("error: ") == 2 and "1 of 3" in result.out


def test_config_schema_and_reference(ludus_, tmp_path):
    assert '"$defs"' in ludus_("config", "schema").out
    assert ludus_("config", "schema", "--write", "--output", "s.json").out.strip() == "wrote s.json"
    assert ludus_("config", "reference").out.startswith("# Configuration reference")
    assert ludus_("config", "reference", "--write").code == 0
    assert (tmp_path / "docs/reference/config.md").is_file() and (tmp_path / "s.json").is_file()
