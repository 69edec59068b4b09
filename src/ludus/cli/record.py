"""`ludus record RUN --out DIR`: demonstrations as a data set in Minari's format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ludus.cli.options import Checkpoint, Deterministic, EnvId, EpisodeSeed, Json, Overrides, Plugin, RunsDir
from ludus.errors import ConfigError
from ludus.files import to_json

if TYPE_CHECKING:
    from ludus.archive.store import RunFolder
    from ludus.config.schema import ExperimentConfig

_WHAT = "A run whose policy plays; with --policy an environment: Env or Env:variant."
_POLICY = "random, or a scripted expert, in place of a run's policy."


def record(
    what: Annotated[str, Argument(metavar="RUN|ENV", help=_WHAT)] = "@last",
    overrides: Overrides = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="Folder of the data set.")] = None,
    episodes: Annotated[int, Option("--episodes", "-n", min=1, help="Episodes to record.")] = 50,
    policy: Annotated[str | None, Option(metavar="random|EXPERT", help=_POLICY)] = None,
    append: Annotated[bool, Option("--append", help="Add the episodes to a data set that exists.")] = False,
    deterministic: Deterministic = None,
    checkpoint: Checkpoint = None,
    seed: EpisodeSeed = None,
    env: EnvId = None,
    json: Json = False,
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Play episodes and write them down, every observation, action and reward as it was."""
    if out is None:
        raise ConfigError("--out", "says not where the data set goes", "write --out datasets/NAME-v0")
    from ludus.session.player import seeded
    from ludus.session.record import record as recorded

    found, step, config = source(what, overrides or [], policy, checkpoint, env, plugin, runs_dir)
    config = seeded(config, seed)
    data, returns = recorded(
        config, out, episodes, run=found, step=step, policy=policy or "", deterministic=deterministic, append=append
    )
    facts = {
        "path": str(out),
        "environment": config.environment.id,
        "policy": policy if found is None else f"{found.id}/{step}",
        "seed": config.experiment.seed,
        "episodes": len(returns),
        "mean": sum(returns) / len(returns),
        "returns": returns,
        "total_episodes": data.count,
        "sha256": data.sha256,
    }
    if json:
        print(to_json(facts), end="")
        return
    print(f"{facts['policy']} in {facts['environment']}")
    spread = f"{min(returns):,.1f} to {max(returns):,.1f}"
    print(f"recorded {len(returns)} episodes, return {facts['mean']:,.1f} ({spread}), seed {facts['seed']}")
    print(f"wrote    {out}: {data.count} episodes, sha256 {data.sha256[:12]}")
    print(f"next     ludus train +experiment=behaviour_cloning buffers.demos.path={out}")


def source(
    what: str,
    overrides: list[str],
    policy: str | None,
    checkpoint: str | None,
    env: str | None,
    plugin: list[Path] | None,
    runs_dir: Path,
) -> tuple[RunFolder | None, str, ExperimentConfig]:
    """(run, its checkpoint, config) of who plays, and where."""
    from ludus.archive.run_plugins import load_for, load_for_spec
    from ludus.archive.store import RunFolder
    from ludus.session.player import checkpoint_name, run_config

    if policy is not None:
        from ludus.config.compose import load as compose

        spec = what if ":" in what else f"{what}:random"
        load_for_spec(spec, overrides, plugin)
        return None, "", compose(spec, overrides).config
    if overrides:
        problem = "a run plays in its own environment"
        raise ConfigError(" ".join(overrides), problem, "leave it out, or name who plays: --policy random")
    found = RunFolder.load(runs_dir, what)
    load_for(found, plugin)
    return found, checkpoint_name(found, checkpoint), run_config(found, env)
