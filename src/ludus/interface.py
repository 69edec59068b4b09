"""The Python interface behind `import ludus`; `ludus/__init__.py` lists what is public."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.archive.store import RunFolder, find_run
from ludus.errors import ConfigError
from ludus.saved import Overrides, SavedRun, override_words

if TYPE_CHECKING:
    import gymnasium as gym

    from ludus.config.compose import Resolved
    from ludus.config.schema import Environment
    from ludus.reports.compare import Comparison

Folder = str | Path


def train(
    spec: str | Path,
    overrides: Overrides = (),
    *,
    seed: int | None = None,
    env: str | gym.Env | Callable[[], gym.Env] | None = None,
    tags: Sequence[str] = (),
    init_from: str | Path | SavedRun | None = None,
    plugins: Sequence[Folder] = (),
    quiet: bool = False,
    runs_dir: Folder = "runs",
) -> SavedRun:
    """Train what `ludus train SPEC OVERRIDES` trains and return its run; with `env`, SPEC may be an algorithm alone."""
    from ludus.archive.run_plugins import load_for_spec
    from ludus.session.train import train as train_run

    start = None
    if init_from is not None:
        start = init_from if isinstance(init_from, SavedRun) else load_run(init_from, runs_dir=runs_dir)
        if start.folder.parent.resolve() != Path(runs_dir).resolve():
            problem = f"{start.id} is not in {runs_dir}"
            raise ConfigError("init_from", problem, f"train with runs_dir={str(start.folder.parent)!r}")
    loaded = load_for_spec(str(spec), override_words(overrides), plugins)
    resolved = resolve(spec, overrides, seed=seed, env=env, tags=tags, quiet=quiet)
    begun = None if start is None else start.reference
    run = train_run(resolved, runs_dir=Path(runs_dir), plugins=loaded, init_from=begun)
    assert run.folder is not None
    return SavedRun(RunFolder(run.folder), plugins)


def resolve(
    spec: str | Path,
    overrides: Overrides = (),
    *,
    seed: int | None = None,
    env: str | gym.Env | Callable[[], gym.Env] | None = None,
    tags: Sequence[str] = (),
    quiet: bool = False,
) -> Resolved:
    """The checked experiment of these arguments."""
    from ludus.archive.tags import check
    from ludus.config.compose import load

    if not isinstance(spec, str | Path):
        remedy = "give a spec such as 'CartPole-v1:ppo' or the path of a config file, and values as overrides"
        raise ConfigError("train", f"the spec is of type {type(spec).__name__}", remedy)
    words = override_words(overrides)
    words += [] if seed is None else [f"experiment.seed={seed}"]
    words += ["logging.console=false"] if quiet else []
    if isinstance(tags, str):
        raise ConfigError("tags", "is one text", f"give a list: [{tags!r}]")
    for tag in map(str, tags):
        check(tag, f"tags: {tag}"[:80])
    words += [f"experiment.tags=[{','.join(repr(str(tag)) for tag in tags)}]"] if tags else []
    if env is not None:
        from ludus.envs.local import env_id

        name = env_id(env)
        spec = spec if ":" in str(spec) or str(spec).endswith((".yaml", ".yml", ".json")) else f"{name}:{spec}"
        words.append(f"environment.id='{name}'")
    return load(str(spec), words)


def load_run(
    run: str | Path = "@last",
    *,
    env: gym.Env | Callable[[], gym.Env] | None = None,
    plugins: Sequence[Folder] = (),
    runs_dir: Folder = "runs",
) -> SavedRun:
    """A run by id, unique prefix, `@last`, `@best` or the path of its folder.

    `env` is what was handed to `train`; `plugins` are files and modules instead of those that the run was made with.
    """
    found = SavedRun(find_run(run, runs_dir), plugins)
    if env is not None:
        from ludus.envs.local import LOCAL, env_id

        id = found.config.environment.id
        if not id.startswith(LOCAL):
            problem = f"the run has its own environment, {id}" if id else "the run learned without an environment"
            raise ConfigError("env", problem, "leave it out")
        env_id(env, id)
    return found


def runs(*filters: str, sort: str = "started", runs_dir: Folder = "runs") -> list[SavedRun]:
    """All runs, or those that fulfil conditions such as `"algorithm=ppo"` and `"reward>400"`; the newest first."""
    from ludus.archive import query
    from ludus.archive.index import Index

    found = query.order(Index(Path(runs_dir)).pick([str(one) for one in filters]), sort)
    return [SavedRun(RunFolder(record.folder)) for record in found]


def compare(
    *chosen: str | SavedRun | Iterable[SavedRun],
    metrics: Sequence[str] = ("final", "best"),
    group_by: str = "config",
    runs_dir: Folder = "runs",
) -> Comparison:
    """Compare groups of runs over their seeds: runs, ids, globs or conditions; the default is all runs."""
    from ludus.archive.index import Index
    from ludus.reports.compare import compare as compare_records

    if isinstance(metrics, str):
        metrics = [metrics]
    words: list[str] = []
    given: list[SavedRun] = []
    for item in chosen:
        if isinstance(item, str):
            words.append(item)
        elif isinstance(item, SavedRun):
            given.append(item)
        elif isinstance(item, Iterable):
            given += item
        else:
            raise ConfigError("compare", f"{item!r} is no run", "give runs, ids, globs or conditions")
    records = {record.id: record for record in Index(Path(runs_dir)).pick(words)} if words or not chosen else {}
    records |= {run.id: run.record for run in given}
    return compare_records(list(records.values()), metrics=metrics, group_by=group_by)


def make_env(what: str | Path | SavedRun, *, render_mode: str | None = None, runs_dir: Folder = "runs") -> gym.Env:
    """One environment of a run, a spec (`CartPole-v1:ppo`) or an id, whose observations `load_policy` takes."""
    from ludus.envs.deployment import deployment_env
    from ludus.envs.spaces import convert_spaces
    from ludus.session.border import cut_of, find_cut

    text = str(what)
    if isinstance(what, SavedRun) or not (":" in text or text.startswith("+") or _is_env(text)):
        run = what if isinstance(what, SavedRun) else _run_or_env(what, runs_dir)
        cfg, cut = run.config.environment, cut_of(RunFolder(run.folder), run.config)
        _require_env(cfg, run.id)
        env = deployment_env(cfg, cut.carried, render_mode)
        return env if env.observation_space == cut.observation else convert_spaces(env, cfg.id)
    if ":" in text or text.startswith("+"):
        from ludus.config.compose import load

        cfg = load(text).config.environment
    else:
        from ludus.config.schema import Environment

        cfg = Environment(id=text)
    _require_env(cfg, text)
    return deployment_env(cfg, find_cut(cfg).carried, render_mode)


def _run_or_env(what: str | Path, runs_dir: Folder) -> SavedRun:
    """The run of this name; a word that looks like an environment's id is answered as one."""
    try:
        return load_run(what, runs_dir=runs_dir)
    except ConfigError:
        if re.fullmatch(r"[\w/.-]+-v\d+", str(what)):
            from ludus.envs.catalog import find

            find(str(what))  # says what is wrong with it
        raise


def _require_env(cfg: Environment, where: str) -> None:
    if not cfg.id:
        raise ConfigError(where, "has no environment", 'name one: ludus.make_env("CartPole-v1")')


def _is_env(text: str) -> bool:
    """Whether a word is an environment id rather than a run: runs have a time in their name."""
    from ludus.envs.catalog import find

    if text.startswith("@") or re.search(r"_\d{8}-\d{6}", text) or ("/" in text and Path(text).exists()):
        return False
    try:
        return find(text) is not None
    except ConfigError:
        return False
