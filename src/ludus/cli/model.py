"""`ludus model SPEC`: the network an experiment would train, part by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from ludus.cli.options import Json, Overrides, Plugin
from ludus.files import to_json

if TYPE_CHECKING:
    from torch import nn

    from ludus.types import Stateful


def model(
    spec: Annotated[str, Argument(metavar="SPEC", help="Env:variant, +experiment=name or a file.")],
    overrides: Overrides = None,
    json: Json = False,
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
    state = player.algorithm.state()
    networks: list[Any] = [part.model for part in state.values() if hasattr(part, "model")]
    parts, total = [part for network in networks for part in parts_of(network)], sum(map(trained, networks))
    if json:
        spaces = {"observation": str(info.observation_space), "action": str(info.action_space)}
        sizes = [{"name": name, "parameters": trained(part)} for name, part in parts]
        print(to_json({"algorithm": config.algorithm.name, **spaces, "parameters": total, "parts": sizes}), end="")
        return
    print(f"observation  {info.observation_space}")
    print(f"action       {info.action_space}")
    for name, part in parts:
        show(name, part)
    if networks:
        print(f"\ntotal  {total:,} parameters that learn")
    else:
        print(f"\n{config.algorithm.name} has no network{tables(state)}")


def parts_of(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The parts of a network by name, those of an actor-critic one by one."""
    for name, part in network.named_children():
        inside = hasattr(part, "parts") and not name.startswith("target_")
        yield from part.named_children() if inside else [(name, part)]


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
