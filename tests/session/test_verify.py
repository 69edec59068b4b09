"""`ludus verify` of a compiled run where updates cannot be compiled, and of one that began with a stored state."""

from __future__ import annotations

from pathlib import Path

from ludus.learning import package
from session.conftest import SMALL, Ludus, only_run


def test_a_difference_that_comes_from_eager_updates_is_explained(ludus: Ludus, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(package, "has_compiler", lambda: True)
    monkeypatch.setattr(package, "obtain", lambda function, *_: lambda: lambda given: function(*given))  # "compiled"
    words = [word for word in SMALL if not word.startswith("runtime.compile")]
    assert ludus("train", *words, "training.total_timesteps=512", "runtime.compile=always").code == 0
    assert "eagerly" not in ludus("verify", "@last").out

    def unavailable(*_):
        raise package.Unavailable("there is no C++ compiler; install g++")

    monkeypatch.setattr(package, "obtain", unavailable)
    told = ludus("verify", "@last")
    assert "updates run eagerly" in told.out and "no C++ compiler" in told.out


def test_a_run_that_began_with_a_stored_state_is_repeated_from_there(ludus: Ludus, tmp_path: Path) -> None:
    assert ludus("train", *SMALL, "training.total_timesteps=128").code == 0
    path = f"training.resume_path={only_run(tmp_path)}/last.ckpt"
    assert ludus("train", *SMALL, "training.total_timesteps=256", path).code == 0
    done = ludus("verify", "@last")
    assert done.code == 0 and "identical: 2 rows up to step 256 and the final state" in done.out, done.out + done.err
