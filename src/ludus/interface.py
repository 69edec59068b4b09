"""The Python interface behind `import ludus`; `ludus/__init__.py` lists what is public."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.archive.store import RunFolder, find_run
from ludus.errors import ConfigError
from ludus.saved import Overrides, SavedRun, override_words

if TYPE_CHECKING:
    import gymnasium as gym

    from ludus.config.compose import Resolved
    from ludus.reports.compare import Comparison

Folder = str | Path


def train(
    spec: str | Path,
    overrides: Overrides = (),
    *,
    seed: int | None = None,
    env: str | gym.Env | Callable[[], gym.Env] | None = None,
    tags: Sequence[str] = (),
    init_from: str | SavedRun | None = None,
    quiet: bool = False,
    runs_dir: Folder = "runs",
) -> SavedRun:
    """Train what `ludus train SPEC OVERRIDES` trains and return its run; with `env`, SPEC may be an algorithm alone."""
    from ludus.session.train import train as train_run

    resolved = resolve(spec, overrides, seed=seed, env=env, tags=tags, quiet=quiet)
    start = init_from.id if isinstance(init_from, SavedRun) else init_from
    run = train_run(resolved, runs_dir=Path(runs_dir), init_from=start)
    assert run.folder is not None
    return SavedRun(RunFolder(run.folder))


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

    words = override_words(overrides)
    words += [] if seed is None else [f"experiment.seed={seed}"]
    words += ["logging.console=false"] if quiet else []
    for tag in tags:
        check(tag, f"tags: {tag}"[:80])
    words += [f"experiment.tags=[{','.join(map(repr, tags))}]"] if tags else []
    if env is not None:
        from ludus.envs.local import env_id

        name = env_id(env)
        spec = spec if ":" in str(spec) or str(spec).endswith((".yaml", ".yml", ".json")) else f"{name}:{spec}"
        words.append(f"environment.id='{name}'")
    return load(str(spec), words)


def load_run(
    run: str | Path = "@last", *, env: gym.Env | Callable[[], gym.Env] | None = None, runs_dir: Folder = "runs"
) -> SavedRun:
    """A run by id, unique prefix, `@last`, `@best` or the path of its folder; `env` as it was handed to `train`."""
    found = SavedRun(find_run(run, runs_dir))
    if env is not None:
        from ludus.envs.local import env_id

        env_id(env, found.config.environment.id)
    return found


def runs(*filters: str, sort: str = "started", runs_dir: Folder = "runs") -> list[SavedRun]:
    """All runs, or those that fulfil conditions such as `"algorithm=ppo"` and `"reward>400"`; the newest first."""
    from ludus.archive import query
    from ludus.archive.index import Index

    found = query.order(Index(Path(runs_dir)).pick(list(filters)), sort)
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
        else:
            given += [item] if isinstance(item, SavedRun) else item
    records = {record.id: record for record in Index(Path(runs_dir)).pick(words)} if words or not given else {}
    records |= {run.id: run.record for run in given}
    return compare_records(list(records.values()), metrics=metrics, group_by=group_by)


def make_env(what: str | Path | SavedRun, *, render_mode: str | None = None, runs_dir: Folder = "runs") -> gym.Env:
    """One environment of a run, a spec (`CartPole-v1:ppo`) or an id, whose observations `load_policy` takes."""
    from ludus.envs.deployment import deployment_env
    from ludus.session.border import cut_of, find_cut

    text = str(what)
    if isinstance(what, SavedRun) or not (":" in text or text.startswith("+") or _is_env(text)):
        run = what if isinstance(what, SavedRun) else load_run(what, runs_dir=runs_dir)
        config = run.config
        return deployment_env(config.environment, cut_of(RunFolder(run.folder), config).carried, render_mode)
    if ":" in text or text.startswith("+"):
        from ludus.config.compose import load

        cfg = load(text).config.environment
    else:
        from ludus.config.schema import Environment

        cfg = Environment(id=text)
    if not cfg.id:
        raise ConfigError(text, "has no environment", "name one")
    return deployment_env(cfg, find_cut(cfg).carried, render_mode)


def _is_env(text: str) -> bool:
    """Whether a word is an environment id rather than a run: runs have a time in their name."""
    from ludus.envs.catalog import find

    if text.startswith("@") or text.count("_") >= 2 or ("/" in text and Path(text).exists()):
        return False
    try:
        return find(text) is not None
    except ConfigError:
        return False
