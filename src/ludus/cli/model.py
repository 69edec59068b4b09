"""`ludus model SPEC`: the network an experiment would train, part by part."""

from __future__ import annotations

from typing import Annotated

import typer

from ludus.cli.plugin import Plugin, load_plugins


def model(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="Env:variant, +experiment=name or a file.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[OVERRIDES]", help="key=value")] = None,
    plugin: Plugin = None,
) -> None:
    """Show encoder, memory and heads with their sizes."""
    from ludus.config.compose import load
    from ludus.envs.make import describe
    from ludus.experiment import build_player
    from ludus.types import Spaces

    load_plugins(plugin)
    config = load(spec, overrides or []).config
    info = describe(config.environment)
    player = build_player(config, Spaces(info.observation_space, info.action_space), None)
    policy = getattr(player.algorithm, "policy", None)
    print(f"observation  {info.observation_space}")
    print(f"action       {info.action_space}")
    if policy is None:
        print(f"{config.algorithm.name} has no network")
        return
    for name, part in policy.named_children():
        print(f"\n{name}  {sum(p.numel() for p in part.parameters()):,} parameters")
        for line in str(part).splitlines():
            print(f"  {line}")
    print(f"\ntotal  {sum(p.numel() for p in policy.parameters()):,} parameters")
