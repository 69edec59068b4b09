"""Code that is built while updates are eager: when it takes over, and what becomes of a build nobody waits for."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import toy_learners as toy
from ludus.learning import package
from ludus.learning.compiled import Compiler
from support import config

BEGINS = 3


class Builds:
    """Stands for the compiler: the code is the traced graph; tells how many builds began and were waited for."""

    def __init__(self, *, works: bool = True) -> None:
        self.begun, self.waited, self.works = 0, 0, works

    def obtain(self, function: Any, example: Any, *_: Any) -> Any:
        self.begun += 1
        graph = package.trace(function, example)

        def wait() -> Any:
            self.waited += 1
            if not self.works:
                raise package.Unavailable("the disk is full")
            return lambda arguments: list(graph(*arguments))

        return wait


def compiler(monkeypatch: pytest.MonkeyPatch, builds: Builds, begins: int = BEGINS) -> Compiler:
    monkeypatch.setattr(package, "has_compiler", lambda: True)
    monkeypatch.setattr(package, "obtain", builds.obtain)
    return Compiler("always", planned={8: 1}, begins=begins)


def test_updates_are_eager_until_the_one_that_waits_for_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    builds = Builds()
    eager, later = toy.learner(), toy.learner(compiler=compiler(monkeypatch, builds))
    for number, batch in enumerate(toy.batches(6)):
        for one in (eager, later):
            one.update(toy.fit, batch, toy.LR)
        assert builds.begun == 1, "it begins with the first update"
        assert builds.waited == (number >= BEGINS)
        if number < BEGINS:
            assert torch.equal(eager.theta, later.theta), "to the bit: there is no code yet"
    torch.testing.assert_close(eager.theta, later.theta, atol=1e-6, rtol=1e-5)
    assert [update.code is not None for update in later.compiled.known.values()] == [True]


def test_a_resumed_run_takes_over_at_the_same_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it was stopped before that update or after it."""
    batches = toy.batches(6)
    whole = toy.learner(compiler=compiler(monkeypatch, Builds()))
    for batch in batches:
        whole.update(toy.fit, batch, toy.LR)
    for stop in (1, 2, 3, 5):
        first = toy.learner(compiler=compiler(monkeypatch, Builds()))
        for batch in batches[:stop]:
            first.update(toy.fit, batch, toy.LR)
        builds = Builds()
        second = toy.learner(compiler=compiler(monkeypatch, builds))
        second.load_state_dict(first.state_dict())
        for number, batch in enumerate(batches[stop:], stop):
            second.update(toy.fit, batch, toy.LR)
            assert builds.waited == (number >= BEGINS)
        assert torch.equal(second.theta, whole.theta)


def test_a_build_that_fails_is_told_where_it_was_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    failing = compiler(monkeypatch, Builds(works=False))
    failing.announce = said.append
    eager, later = toy.learner(), toy.learner(compiler=failing)
    for number, batch in enumerate(toy.batches(6)):
        for one in (eager, later):
            one.update(toy.fit, batch, toy.LR)
        assert len(said) == (number >= BEGINS)
    assert torch.equal(eager.theta, later.theta)
    assert failing.state_dict() == {"sizes": [], "reason": "the disk is full"}


def test_a_module_that_runs_many_times_is_eager_until_then_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward pass are waited for; so is a part without gradients."""

    class Doubled(torch.nn.Linear):
        repeated = True

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (2.0 * super().forward(x),)

    def part(nets: Any, inputs: Any) -> Any:
        return {"out": nets.net(inputs["x"])[0]}

    def update(nets: Any, batch: Any, c: Any) -> Any:
        fixed = nets.fixed(part, {"x": batch["x"]})["out"]
        loss = (nets.net(batch["x"])[0] - 0.1 * fixed - batch["y"]).square().mean()
        nets.step("net", loss, c["lr"])
        return {"loss/error": loss}

    def made(compiles: Compiler | None) -> Any:
        torch.manual_seed(0)
        return toy.Learner(
            {"net": Doubled(4, 2)},
            {"net": toy.Group(("net",), toy.OptimizerConfig())},
            generator=toy.np.random.default_rng(0),
            compiler=compiles,
            whole=False,
        )

    builds = Builds()
    eager, later = made(None), made(compiler(monkeypatch, builds))
    for number, batch in enumerate(toy.batches(6)):
        for one in (eager, later):
            one.update(update, batch, toy.LR)
        assert builds.begun == 3
        if number < BEGINS - 1:
            assert torch.equal(eager.theta, later.theta) and builds.waited == 0
    assert builds.waited == 3
    torch.testing.assert_close(eager.theta, later.theta, atol=1e-5, rtol=1e-4)


def test_the_run_says_when_its_updates_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from ludus.experiment import planned_compiler

    monkeypatch.setattr(package, "has_compiler", lambda: True)
    ppo = {"name": "ppo", "rollout_steps": 16}
    cfg = config(ppo, training={"total_timesteps": 640}, runtime={"compile": "always", "compile_from": 2_000})
    assert planned_compiler(cfg, 4, print).describe() == "compiled from update 2,000 on"


# ---- the process --------------------------------------------------------------------------------------


def slow_compiler(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """A compiler that takes a minute."""
    begun: list[subprocess.Popen[bytes]] = []

    def compile_apart(_: Any, __: Any, scratch: Path) -> subprocess.Popen[bytes]:
        (scratch / "said").write_text("")
        begun.append(subprocess.Popen(["sleep", "60"], start_new_session=True))
        return begun[-1]

    monkeypatch.setattr(package, "has_compiler", lambda: True)
    monkeypatch.setattr(package, "compile_apart", compile_apart)
    return begun


def double(x: torch.Tensor) -> tuple[torch.Tensor]:
    return (x * 2.0,)


def test_a_build_that_nobody_waits_for_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = slow_compiler(monkeypatch)
    wait = package.obtain(double, [torch.ones(3)], tmp_path, lambda _: None)
    assert begun[0].poll() is None and len(list(tmp_path.iterdir())) == 1
    del wait
    gc.collect()
    assert begun[0].poll() is not None and list(tmp_path.iterdir()) == []


def test_a_forked_process_leaves_the_build_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = slow_compiler(monkeypatch)
    wait = package.obtain(double, [torch.ones(3)], tmp_path, lambda _: None)
    package.end(begun[0], tmp_path, os.getpid() + 1)
    assert begun[0].poll() is None and list(tmp_path.iterdir())
    del wait


def test_a_build_that_takes_too_long_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = slow_compiler(monkeypatch)
    monkeypatch.setattr(package, "LONGEST_BUILD", 0.0)
    with pytest.raises(package.Unavailable, match="compiling took longer than 0 s"):
        package.obtain(double, [torch.ones(3)], tmp_path, lambda _: None)()
    assert begun[0].poll() is not None and list(tmp_path.iterdir()) == []


ENDS = """
import sys
from pathlib import Path
import torch
from ludus.learning import package
package.has_compiler = lambda: True
wait = package.obtain(lambda x: (x * 2,), [torch.ones(3)], Path(sys.argv[1]), lambda _: None)
print(wait._child.pid)
"""


def test_a_build_ends_with_the_run(tmp_path: Path) -> None:
    """A run that is solved before its code is needed leaves no compiler behind."""
    ended = subprocess.run([sys.executable, "-c", ENDS, str(tmp_path)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-500:]
    deadline = time.monotonic() + 30.0
    while Path(f"/proc/{int(ended.stdout)}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []
