"""`ludus verify` of a compiled run where updates cannot be compiled."""

from __future__ import annotations

from pathlib import Path

from ludus.learning import package
from session.conftest import SMALL, Ludus


def test_a_difference_that_comes_from_eager_updates_is_explained(ludus: Ludus, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(package, "has_compiler", lambda: True)
    monkeypatch.setattr(package, "obtain", lambda function, *_: lambda arguments: function(*arguments))  # "compiled"
    words = [word for word in SMALL if not word.startswith("runtime.compile")]
    assert ludus("train", *words, "training.total_timesteps=512", "runtime.compile=always").code == 0
    assert "eagerly" not in ludus("verify", "@last").out

    def unavailable(*_):
        raise package.Unavailable("there is no C++ compiler; install g++")

    monkeypatch.setattr(package, "obtain", unavailable)
    told = ludus("verify", "@last")
    assert "updates run eagerly" in told.out and "no C++ compiler" in told.out
