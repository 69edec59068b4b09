"""What of a run may leave this machine: no secrets, no local paths, nothing that only this machine has."""

from __future__ import annotations

import json
import os
import platform
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ludus import files, secrets
from ludus.archive import checkpoint, package, rebuild, record, run_plugins, steps
from ludus.archive.package import Manifest
from ludus.archive.record import Record, mapping
from ludus.archive.store import RunFolder
from ludus.config.compose import config_hash, dump, parse, to_yaml
from ludus.config.read import plain, read_file
from ludus.config.schema import ExperimentConfig, Logging
from ludus.envs.make import number_of_envs
from ludus.errors import ConfigError, DataError
from ludus.plugins import is_file
from ludus.seeding import Streams

_FACTS = ("id", "name", "algorithm", "environment", "seed", "env_steps", "updates", "seconds", "threshold", "started")
PICKLED = "its environments are pickled: a pulled run begins its episodes anew, and fills its buffers again"


def write_whole(run: RunFolder, path: Path, folder: Path) -> str:
    """Write a checkpoint into an empty folder with all that it needs to go on to the bit; returns what is left out."""
    found = record.read(run.path)
    if found is None:
        raise DataError(str(run.path), "has no config.yaml", "it is not the folder of a run")
    config = portable_config(parse(read_file(run.config_path), str(run.config_path)))
    refuse_paths(config)
    best = run.path / "checkpoints" / "best"
    pickled = _write_state(run, path, config, folder)
    files.write_text(folder / package.CONFIG, to_yaml(config))
    for name in (package.SPACES, package.ROWS):
        if (run.path / name).is_file():
            whole = files.read(run.path / name, package.LIMITS[name])
            files.write_bytes(folder / name, whole[: whole.rfind(b"\n") + 1], durable=False)
    facts = facts_of(found, run, path.name, config)
    Manifest(
        checkpoint=path.name,
        run={**facts, "best": best.is_symlink() and str(best.readlink()) == path.name},
        provenance=provenance_of(run),
        plugins=plugins_of(run),
        files=package.listed(folder),
    ).write(folder)
    refuse_private(folder, run)
    return PICKLED if pickled else ""


def _write_state(run: RunFolder, path: Path, config: ExperimentConfig, folder: Path) -> bool:
    """The state as it is, with the stored steps; without environments and steps if there is a pickle in it."""
    tree = json.loads(files.read(path / checkpoint.STATE, package.LIMITS[package.STATE]))
    if mapping(tree.get("collector")).get("snapshot_method") == "pickle":
        write_checkpoint(run, path.name, config, folder)
        return True
    if any(mapping(shard).get("buffers") for shard in mapping(tree.get("ranks")).values()):
        raise ConfigError("runtime.ranks", "stored steps of several ranks are not archived", "train with one rank")
    tree.pop("about", None)
    files.write_bytes(folder / package.STATE, json.dumps(tree, allow_nan=False).encode(), durable=False)
    try:  # never changed once it is written
        os.link(path / checkpoint.TENSORS, folder / package.WEIGHTS)
    except OSError:
        shutil.copyfile(path / checkpoint.TENSORS, folder / package.WEIGHTS)
    steps.pack(tree["buffers"], run.path / "buffers", folder)
    return False


def portable_config(config: ExperimentConfig) -> ExperimentConfig:
    """The config without what belongs to this machine: its device, logs, programs and folders."""
    buffers = {
        name: replace(choice, config=choice.config.model_copy(update={"path": package.NOT_PUBLISHED}))
        if "path" in type(choice.config).model_fields
        else choice
        for name, choice in config.buffers.items()
    }
    return config.model_copy(
        update={
            "experiment": config.experiment.model_copy(update={"device": "auto"}),
            "training": config.training.model_copy(update={"resume_path": None}),
            "logging": Logging(),
            "buffers": buffers,
        }
    )


def refuse_paths(config: ExperimentConfig) -> None:
    """No value of the config is a path that only this machine has."""
    for place in package.local_paths(dump(config)):
        raise ConfigError(f"config.yaml: {place}", "is a local path", "publish a run that does without it")


def write_checkpoint(run: RunFolder, step: str, config: ExperimentConfig, folder: Path) -> None:
    """The state without environments, stored steps and what it tells about the machine: episodes begin anew."""
    path = checkpoint.find(run.path, step)
    state = checkpoint.load(path)
    state.pop("about", None)
    if "collector" in state:
        if lacking := [key for key in package.COLLECTED if key not in state["collector"]]:
            problem = f"the state of its collector has no '{lacking[0]}'"
            raise DataError(str(path), problem, "publish a checkpoint that Ludus has written itself")
        seeds = Streams(config.experiment.seed).integers(f"published {step}", number_of_envs(config.environment))
        collector = {key: state["collector"][key] for key in package.COLLECTED}
        state["collector"] = {**collector, "env": None, "barrier_seeds": seeds}
    state["buffers"] = {}
    for name, data in checkpoint.encode(state).items():
        target = {checkpoint.TENSORS: package.WEIGHTS, checkpoint.STATE: package.STATE}[name]
        files.write_bytes(folder / target, data)


def facts_of(found: Record, run: RunFolder, step: str, config: ExperimentConfig) -> dict[str, Any]:
    """Facts about the run; the state is that in which a copy of this checkpoint is."""
    newest = list(checkpoint.checkpoints(run.path))[-1] == step
    state = "finished" if found.state == "finished" and newest else "stopped"
    spec = found.spec if ":" in found.spec and "/" not in found.spec.partition(":")[2] else ""
    spec = "" if found.spec.startswith(("/", "~", ".")) or ".yaml" in spec else spec
    return {**found.values(_FACTS), "spec": spec, "state": state, "config_hash": config_hash(config)}


def provenance_of(run: RunFolder) -> dict[str, Any]:
    """Versions and commit of the code, and the kind of machine; neither names nor paths."""
    meta = rebuild.meta(run.path)
    git, versions, host = (mapping(meta.get(key)) for key in ("git", "versions", "host"))
    system = str(host.get("platform") or platform.system()).partition("-")[0]
    return {
        "versions": {str(name): str(version) for name, version in versions.items()},
        "git": {key: git[key] for key in ("commit", "dirty") if key in git},
        "machine": f"{system} {host.get('machine') or ''}".strip(),
        "published": datetime.now(UTC).date().isoformat(),
    }


def plugins_of(run: RunFolder) -> list[dict[str, str]]:
    """The plugins by name and sum, without the place where they are."""
    recorded = run_plugins.recorded(run)
    return [{"name": Path(one.name).name if is_file(one.name) else one.name, "sha256": one.sha256} for one in recorded]


def refuse_private(folder: Path, run: RunFolder) -> None:
    """The last look: no text of the package names a secret or a folder of this machine."""
    places = {str(Path.home()), str(Path.cwd()), str(run.path.absolute()), str(run.path.resolve().parent)}
    private = sorted((place for place in places if len(place) > 4), key=len, reverse=True)
    written = {place: (place, json.dumps(place)[1:-1]) for place in private}  # JSON escapes other alphabets
    for path in sorted(folder.iterdir()):
        if path.suffix in (".mp4", ".png", ".safetensors", ".bin"):
            continue
        text = path.read_text(encoding="utf-8")
        if secrets.contains(text):
            raise ConfigError(path.name, "contains what looks like a secret", "remove it from the run's config")
        if path.name == package.CONFIG:  # YAML breaks lines within a folder's name and doubles its quotes
            text = json.dumps(plain(read_file(path)))
        place = next((place for place in private if any(form in text for form in written[place])), None)
        if place is not None:
            remedy = "remove it from the run's config or description: everybody would read it"
            raise ConfigError(path.name, f"names the local folder {place}", remedy)
