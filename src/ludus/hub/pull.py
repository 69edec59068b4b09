"""Bring a published or archived run back as a run folder; nothing of it is believed before it was checked.

Only files with known names and bounded sizes are fetched, at one commit, and compared with the sums in `ludus.json`.
None of them is code, nothing is unpickled and no program named by a config is started. Environments are restored only
from W&B, where a run goes on to the bit, and only from plain data, as for any other run folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ludus import files
from ludus.archive import checkpoint, package, steps
from ludus.archive.lock import RunLock
from ludus.archive.package import Manifest, refusal
from ludus.archive.store import RunFolder, read_json
from ludus.errors import ConfigError, DataError, LudusError, ResourceError, of_system
from ludus.hub.client import Hub, repository
from ludus.hub.wandb import SCHEME, WandbRuns, located, reference
from ludus.saved import SavedRun
from ludus.text import clean, safe_name

MOST_NUMBERS = 10**8
"""Numbers of an observation and an action together."""
DEEPEST = 100
"""Lists and dicts within each other in a state."""
_NO_SPACE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, RecursionError)
"""What a description that is none may raise."""
_DTYPE = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)")


def pull(
    repository_and_revision: str, *, runs_dir: str | Path = "runs", say: Callable[[str], None] = lambda _: None
) -> SavedRun:
    """The run in a repository of the Hub, `user/name` or `user/name@revision`, as a run folder of its own.

    `wandb:entity/project/name` or `wandb:entity/project/name:version` is one that was archived at W&B.
    """
    (repo, revision), hub, root = *source_of(repository_and_revision), Path(runs_dir)
    commit = hub.commit_of(repo, revision)
    where = located(repo, commit)
    sizes = hub.sizes(repo, commit)
    package.check_names(sizes, where, steps=hub.whole)
    staging = root / f".pull-{hashlib.sha256(f'{hub.endpoint} {repo} {commit}'.encode()).hexdigest()[:16]}"
    try:
        staging.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone(staging, where):
            manifest = _fetched(hub, repo, commit, sizes, staging / "files", where, say)
            assembled = _assembled(manifest, staging, where, {"repo": repo, "commit": commit}, whole=hub.whole)
            run = RunFolder.adopt(root, safe_name(str(manifest.run.get("name") or repo.rpartition("/")[2])), assembled)
    except DataError:
        shutil.rmtree(staging, ignore_errors=True)  # of a stranger who lies nothing stays
        raise
    except OSError as error:
        raise of_system(error, str(staging)) from None
    shutil.rmtree(staging, ignore_errors=True)
    return SavedRun(run)


def source_of(text: str) -> tuple[tuple[str, str | None], Hub | WandbRuns]:
    """(repository, revision) that a reference names, and where it is; says what is missing to read from there."""
    if text.startswith(SCHEME):
        return reference(text), WandbRuns()
    return repository(text), Hub()


def repeats(run: SavedRun, evaluation: Mapping[str, Any]) -> list[float]:
    """Play the episodes of the card again and return their returns."""
    count = len(evaluation["returns"])
    result = run.evaluate(count, deterministic=evaluation["deterministic"], seed=evaluation["seed"])
    return list(result.returns)


def published(run: SavedRun) -> dict[str, Any]:
    """What the run folder tells about the package it was pulled from."""
    return dict(read_json(run.folder / "meta.json").get("pulled") or {})


def _fetched(
    hub: Hub | WandbRuns,
    repo: str,
    commit: str,
    sizes: Mapping[str, int],
    folder: Path,
    where: str,
    say: Callable[[str], None],
) -> Manifest:
    """Download the manifest, then what it lists; every size and sum agrees."""
    listing = hub.download(repo, commit, package.MANIFEST, folder)
    try:
        told = files.read(listing, package.LIMITS[package.MANIFEST], follow=False)
        manifest = package.read_manifest(told, where, steps=hub.whole)
    except OSError as error:
        raise refusal(where, package.MANIFEST, f"cannot be read: {error.strerror}") from None
    for name, entry in manifest.files.items():
        if sizes.get(name) != entry["size"]:
            raise refusal(where, name, f"{sizes.get(name)} bytes {hub.there}, {entry['size']} in {package.MANIFEST}")
    total, free = sum(entry["size"] for entry in manifest.files.values()), shutil.disk_usage(folder).free
    if 2 * total > free:
        raise ResourceError(where, f"needs {2 * total:,} bytes, {free:,} are free", "free some space")
    say(f"{where}: {total / package.MB:,.1f} MB")
    for name, entry in manifest.files.items():
        package.check_file(hub.download(repo, commit, name, folder), entry, where)
    return manifest


def _assembled(manifest: Manifest, staging: Path, where: str, source: dict[str, str], *, whole: bool) -> Path:
    """A complete run folder beside its final place."""
    from ludus.config.read import to_yaml

    fetched, folder = staging / "files", staging / "run"
    shutil.rmtree(folder, ignore_errors=True)  # of an attempt that was killed
    folder.mkdir(mode=0o700)
    config = _config(fetched / package.CONFIG, bool(manifest.plugins), where)
    state = _state(fetched, where, whole=whole)
    meta = _meta(manifest, config, source)
    files.write_text(folder / "config.yaml", to_yaml(config))
    if package.ROWS in manifest.files:
        (fetched / package.ROWS).rename(folder / "metrics.jsonl")
        (folder / "metrics.jsonl").chmod(0o600)
    if package.SPACES in manifest.files:
        files.write_text(folder / package.SPACES, _spaces(fetched / package.SPACES, where))
    about = {"config": config, "meta": meta}
    if state["buffers"]:
        _put_steps(state["buffers"], fetched, folder / "buffers", manifest.checkpoint, where)
    best = manifest.run.get("best") is not False  # what is published always is
    checkpoint.save(folder, {**state, "about": about}, name=manifest.checkpoint, best=best)
    files.write_json(folder / "meta.json", meta)
    run, steps = RunFolder(folder), {key: manifest.run.get(key) for key in ("env_steps", "updates")}
    ended = "finished" if manifest.run.get("state") == "finished" else "stopped"
    run.set_status(ended, reason=f"pulled from {where}", **{key: one for key, one in steps.items() if one is not None})
    run.log(f"pulled from {where}")
    return folder


def _config(path: Path, has_plugins: bool, where: str) -> dict[str, Any]:
    """The config as plain data, after everything in it that reaches out of the run was refused."""
    from pydantic import ValidationError

    from ludus.config.compose import dump, parse
    from ludus.config.merge import Draft, layers_of
    from ludus.config.read import plain, read_file
    from ludus.config.schema import Logging

    try:
        raw = plain(read_file(path))
        data = Draft(layers_of(raw, package.CONFIG)).resolve().data
        if not has_plugins:  # their names are known only after their user has loaded them
            data = dump(parse(raw, package.CONFIG))
        logging = Logging.model_validate(data.get("logging") or {})
    except ConfigError as error:
        raise refusal(where, package.CONFIG, clean(error.line().replace(str(path), ""), 300)) from None
    except ValidationError:
        raise refusal(where, package.CONFIG, "logging: is no such section") from None
    sections = {name: value if isinstance(value := data.get(name), dict) else {} for name in ("training", "buffers")}
    if logging != Logging():
        raise refusal(where, package.CONFIG, "logging: a published run has no programs, projects and logs of its own")
    if sections["training"].get("resume_path"):
        raise refusal(where, package.CONFIG, "training.resume_path: names a folder of this machine")
    for name, choice in sections["buffers"].items():
        if isinstance(choice, dict) and choice.get("path") not in (None, package.NOT_PUBLISHED):
            raise refusal(where, package.CONFIG, f"buffers.{name}.path: names a folder of this machine")
    for place in package.local_paths(data):
        raise refusal(where, package.CONFIG, f"{clean(place, 80)}: names a file of this machine")
    return data


def _put_steps(buffers: Mapping[str, Any], fetched: Path, folder: Path, tag: str, where: str) -> None:
    try:
        steps.unpack(buffers, fetched, folder, tag)
    except DataError as error:
        raise refusal(where, package.STATE, error.line()[:200]) from None


def _state(fetched: Path, where: str, *, whole: bool) -> dict[str, Any]:
    """The state of the checkpoint; environments and buffers only if it is `whole`, and never a pickle."""
    content = {checkpoint.TENSORS: fetched / package.WEIGHTS, checkpoint.STATE: fetched / package.STATE}
    try:
        state = checkpoint.decode({name: path.read_bytes() for name, path in content.items()}, fetched)
    except DataError as error:
        raise refusal(where, package.STATE, error.problem[:200]) from None
    collector = state.get("collector")
    if not isinstance(state.get("algorithm"), dict) or not isinstance(state.get("run"), dict):
        raise refusal(where, package.STATE, "holds no state of a run")
    if collector is not None and not isinstance(collector, dict):
        raise refusal(where, package.STATE, "holds no state of a collector")
    restores = collector is not None and collector.get("env") is not None
    if restores and not whole:
        raise refusal(where, package.STATE, "holds environments, which are never restored from elsewhere")
    if _depth(state) > DEEPEST:
        raise refusal(where, package.STATE, "is nested too deeply")
    if _pickled(state):
        raise refusal(where, package.STATE, "holds a pickle, which is never loaded from elsewhere")
    if collector is not None and not restores and (lacking := {*package.COLLECTED, "barrier_seeds"} - collector.keys()):
        raise refusal(where, package.STATE, f"the state of the collector has no '{min(lacking)}'")
    if not isinstance(state.setdefault("buffers", {}), dict) or (state["buffers"] and not whole):
        raise refusal(where, package.STATE, "refers to stored steps, which are never published")
    state.pop("about", None)
    return state


def _depth(value: object) -> int:
    """How deeply a state is nested; whoever writes it again needs more of the stack than reading it took."""
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return 1 + max(map(_depth, items), default=0)


def _pickled(value: object) -> bool:
    """Whether a pickled environment is anywhere in a state."""
    if isinstance(value, Mapping):
        sealed = value.get("snapshot_method") == "pickle" or value.keys() >= {"pickle", "mac"}
        return sealed or any(map(_pickled, value.values()))
    return isinstance(value, list | tuple) and any(map(_pickled, value))


def _spaces(path: Path, where: str) -> str:
    """The description of the spaces, if they can be read and do not fill the memory."""
    from ludus.data.buffers.saving import read_space

    try:
        data = read_json(path)
        if not _numbers(data) <= MOST_NUMBERS:  # NaN is no size either
            raise DataError(package.SPACES, f"spaces of more than {MOST_NUMBERS:,} numbers")
        for side in ("observation", "action"):
            read_space(data[side])
        return files.to_json(data)
    except DataError as error:
        raise refusal(where, package.SPACES, error.problem[:120]) from None
    except _NO_SPACE as error:
        raise refusal(where, package.SPACES, f"not readable: {clean(repr(error), 120)}") from None


def _numbers(data: object) -> float:
    """How many numbers the spaces of a description have, a choice of n counted as n; infinite if of a foreign type."""
    if isinstance(data, list):
        return sum(map(_numbers, data))
    if not isinstance(data, dict):
        return 0
    if data.get("type") == "box" and not _DTYPE.fullmatch(str(data.get("dtype"))):
        return math.inf
    own = math.prod(_sizes(data.get("shape"))) * math.prod(_sizes(data.get("n"))) * sum(_sizes(data.get("nvec", 1)))
    return own + sum(map(_numbers, data.values()))


def _sizes(value: object) -> list[float]:
    if isinstance(value, list):
        return [size for item in value for size in _sizes(item)]
    return [float(abs(value))] if isinstance(value, int | float) else []  # the product of huge integers takes hours


def _meta(manifest: Manifest, config: Mapping[str, Any], source: dict[str, str]) -> dict[str, Any]:
    from ludus.config.read import digest

    run, found = manifest.run, manifest.provenance
    plugins = [
        {"path" if one["name"].endswith(".py") else "module": one["name"], "sha256": one["sha256"]}
        for one in manifest.plugins
    ]
    return {
        "name": run.get("name"),
        "spec": run.get("spec") or "",
        "overrides": [],
        "config_hash": digest(config),
        "started": run.get("started"),
        "versions": found.get("versions") or {},
        "git": found.get("git") or None,
        **({"plugins": plugins} if plugins else {}),
        "pulled": {**source, "run": run.get("id"), "evaluation": manifest.evaluation},
    }


@contextlib.contextmanager
def _alone(staging: Path, where: str) -> Iterator[None]:
    """Keep a second pull of the same commit away while this one works."""
    lock = RunLock(staging)
    try:
        lock.acquire()
    except LudusError:
        raise ConfigError(where, "is being pulled by another process", "wait for it") from None
    try:
        yield
    finally:
        lock.release()
