"""Two ranks for a test: this process, and a second one that serves all tests of a session."""

from __future__ import annotations

import importlib.util
import inspect
import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from ludus.errors import LudusError

SECONDS = 120.0
_second: list[tuple[Any, Connection]] = []


def together(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(ranks, *arguments)` returns on both; an error of the first is raised, of the second returned.

    The function has to be one of a file: the second process imports that.
    """
    from torch.distributed import TCPStore

    from ludus.learning.ranks import ConnectedRanks

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    link = _link()
    link.send_bytes(pickle.dumps((store.port, inspect.getfile(function), function.__name__, arguments)))
    ranks = ConnectedRanks(0, 2, store, timeout=SECONDS, local_rank=0, dead=_dead)
    try:
        ranks.join()
        return [function(ranks, *arguments), pickle.loads(link.recv_bytes())]
    except BaseException:
        process, _ = _second.pop()
        process.kill()
        raise
    finally:
        ranks.leave()


def _link() -> Connection:
    if not _second:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        _second.append((process, ours))
    return _second[0][1]


def _serve(link: Connection) -> None:
    import torch
    from torch.distributed import TCPStore

    from ludus.learning.ranks import ConnectedRanks

    torch.set_num_threads(1)
    while True:
        try:
            port, file, name, arguments = pickle.loads(link.recv_bytes())
        except EOFError:
            return
        function = getattr(_module(file), name)
        ranks = ConnectedRanks(
            1, 2, TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False), timeout=SECONDS, local_rank=1
        )
        try:
            ranks.join()
            link.send_bytes(pickle.dumps(function(ranks, *arguments)))
        except LudusError as error:
            link.send_bytes(pickle.dumps(error))
        ranks.leave()


def _module(file: str) -> ModuleType:
    name = f"second_{Path(file).parent.name}_{Path(file).stem}"  # folders have files of the same name
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _dead() -> str | None:
    return None if _second and _second[0][0].is_alive() else "the second process"
