"""`ludus model SPEC`: the network an experiment would train, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from ludus.cli.options import Overrides, Plugin

if TYPE_CHECKING:
    from torch import nn

    from ludus.types import Stateful


def model(
    spec: Annotated[str, Argument(metavar="SPEC", help="Env:variant, +experiment=name or a file.")],
    overrides: Overrides = None,
    plugin: Plugin = None,
) -> None:
    """Show what an experiment trains: encoder, memory, heads and critics with their sizes, or a table."""
    from ludus.archive.run_plugins import load_for_spec
    from ludus.config.compose import load
    from ludus.envs.make import describe
    from ludus.session.player import build_player
    from ludus.types import Spaces

    load_for_spec(spec, overrides or [], plugin)
    config = load(spec, overrides or []).config
    info = describe(config.environment)
    player = build_player(config, Spaces(info.observation_space, info.action_space), None)
    print(f"observation  {info.observation_space}")
    print(f"action       {info.action_space}")
    parts = player.algorithm.state()
    networks: list[Any] = [part.model for part in parts.values() if hasattr(part, "model")]
    for network in networks:
        for name, part in network.named_children():
            inside = hasattr(part, "parts") and not name.startswith("target_")
            for shown, child in part.named_children() if inside else [(name, part)]:
                show(shown, child)
    if networks:
        print(f"\ntotal  {sum(map(trained, networks)):,} parameters that learn")
    else:
        print(f"\n{config.algorithm.name} has no network{tables(parts)}")


def show(name: str, part: nn.Module) -> None:
    """One part of a network with its layers; a target is only a copy."""
    if name.startswith("target_"):
        print(f"\n{name}  a slow copy of {name.removeprefix('target_')}")
        return
    print(f"\n{name}  {trained(part):,} parameters")
    for line in str(part).splitlines():
        print(f"  {line}")
    for own, parameter in part.named_parameters(recurse=False):
        print(f"  {own}  {parameter.numel():,} parameters")


def trained(network: nn.Module) -> int:
    """Number of parameters that are trained."""
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


def tables(parts: Mapping[str, Stateful]) -> str:
    """Arrays that an algorithm without a network learns, as words."""
    states = [(name, array) for name, part in parts.items() for array in part.state_dict().values()]
    shapes = [(name, shape) for name, array in states if (shape := getattr(array, "shape", ()))]
    arrays = [f"{name} of {' x '.join(map(str, shape))} numbers" for name, shape in shapes]
    return f", but a {' and a '.join(arrays)}" if arrays else " and learns nothing"
