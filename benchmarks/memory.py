"""Memory cores: what an update and a step cost at matched parameters, and PPO with an LSTM against peers.

python benchmarks/memory.py                    forward + backward and one step of every core, relative to our LSTM
python benchmarks/memory.py --length           Mamba-2 over sequences of 128 to 4096 steps; --plot FILE draws it
python benchmarks/memory.py --peers            PPO + LSTM 128 on CartPole without velocities, 8 x 128, one thread
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))

import torch
from match import Contestant, machine, note, rates, ratio
from task import Task

from ludus.acting.numpy_cores import NUMPY_CORES
from ludus.networks.memory import MemoryCore
from ludus.registry import MEMORY

CORES = ("lstm", "gru", "min_gru", "trxl", "gtrxl", "mamba", "mamba2")
STEPS, BATCH, WIDTH, ENDS = 128, 8, 128, 0.02
PEERS: dict[str, Contestant] = {
    "sb3_contrib": ("memory_sb3.py",),
    "puffer_shaped": ("memory_puffer_shaped.py",),
    "ludus": ("memory_ludus.py",),
    "floor": ("memory_floor.py",),
}
TASK = Task(envs=8, rollout_steps=128, epochs=4, batch=512, total=1024 * 12)


def parameters(core: torch.nn.Module) -> int:
    """Weights of a core."""
    return sum(parameter.numel() for parameter in core.parameters())


def matched(name: str, budget: int) -> MemoryCore:
    """The core whose width brings its parameters closest to the budget, one layer, everything else by default."""
    cls = MEMORY[name]
    layers = {"num_layers": 1} if "num_layers" in cls.Config.model_fields else {}
    made = (cls(cls.Config(hidden_dim=width, **layers), WIDTH) for width in range(32, 257, 4))  # whole heads
    return min(made, key=lambda core: abs(parameters(core) - budget))


def cpu_time(work: Callable[[], object]) -> float:
    """Milliseconds of processor time: what other processes take does not count."""
    start = time.thread_time()
    work()
    return 1e3 * (time.thread_time() - start)


def cores(repeats: int) -> dict[str, object]:
    """Medians; the ratio of one repeat is taken within it."""
    torch.manual_seed(0)
    lstm = MEMORY["lstm"](MEMORY["lstm"].Config(hidden_dim=WIDTH), WIDTH)
    field = {name: lstm if name == "lstm" else matched(name, parameters(lstm)) for name in CORES}
    x = torch.randn(STEPS, BATCH, WIDTH, requires_grad=True)
    first = torch.rand(STEPS, BATCH) < ENDS
    update: dict[str, list[float]] = {name: [] for name in field}
    step: dict[str, list[float]] = {name: [] for name in field}
    for repeat in range(repeats + 2):
        for name, core in field.items():
            taken = cpu_time(lambda core=core: core(x, core.initial_state(BATCH), first)[0].sum().backward())
            acted = step_time(name, core, x.detach())
            if repeat >= 2:
                update[name].append(taken)
                step[name].append(acted)
    return {
        name: {
            "parameters": parameters(core),
            "width": core.out_dim,
            "update_ms": round(statistics.median(update[name]), 2),
            "times_lstm": round(statistics.median(a / b for a, b in zip(update[name], update["lstm"], strict=True)), 2),
            "step_us": round(1e3 * statistics.median(step[name])),
            "step_in": "numpy" if name in NUMPY_CORES else "torch",
        }
        for name, core in field.items()
    }


@torch.no_grad()
def step_time(name: str, core: MemoryCore, x: torch.Tensor, count: int = 10) -> float:
    """Milliseconds of one step of `BATCH` environments in long episodes, as policies on vectors take it."""
    first = torch.zeros(1, BATCH, dtype=torch.bool)
    _, state = core(x, core.initial_state(BATCH), first.expand(STEPS, BATCH))
    if name not in NUMPY_CORES:
        return cpu_time(lambda: [core(x[:1], state, first) for _ in range(count)]) / count
    from ludus.types import tree_map

    step = NUMPY_CORES[name](core, lambda parameter: parameter.detach().numpy().copy())
    arrays, row, starts = tree_map(lambda leaf: leaf.numpy(), state), x[0].numpy(), first[0].numpy()
    return cpu_time(lambda: [step(row, arrays, starts) for _ in range(count)]) / count


def length(repeats: int, plot: Path | None) -> dict[str, object]:
    """Milliseconds per 128 steps of Mamba-2 by length: constant if the cost is linear."""
    core = MEMORY["mamba2"](MEMORY["mamba2"].Config(hidden_dim=WIDTH), WIDTH)
    lengths = [128 * 2**k for k in range(6)]
    taken: dict[int, list[float]] = {n: [] for n in lengths}
    for _ in range(repeats):
        for n in lengths:
            x, first = torch.randn(n, BATCH, WIDTH, requires_grad=True), torch.rand(n, BATCH) < ENDS
            taken[n].append(
                cpu_time(lambda x=x, first=first: core(x, core.initial_state(BATCH), first)[0].sum().backward())
            )
        note(f"length: {taken}")
    medians = {n: statistics.median(values) for n, values in taken.items()}
    if plot is not None:
        draw(medians, plot)
    return {str(n): {"update_ms": round(ms, 1), "ms_per_128": round(ms * 128 / n, 2)} for n, ms in medians.items()}


def draw(medians: dict[int, float], path: Path) -> None:
    """Time against length, both logarithmic, beside a line of slope one."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 3.5), layout="constrained")
    lengths = list(medians)
    axes.loglog(lengths, list(medians.values()), "o-", label="Mamba-2")
    axes.loglog(lengths, [medians[lengths[0]] * n / lengths[0] for n in lengths], "--", label="linear")
    axes.minorticks_off()
    axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
    axes.set(xlabel="sequence length", ylabel="forward + backward, ms")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def peers(repeats: int) -> dict[str, object]:
    """Median training steps per second and the ratios to the peers."""
    with tempfile.TemporaryDirectory() as cache:
        got = rates(PEERS, TASK, repeats, Path(cache), "lstm")
    return {
        name: {
            "steps_per_second": round(statistics.median(values)),
            "times_sb3_contrib": ratio(got, name, "sb3_contrib"),
            "times_puffer_shaped": ratio(got, name, "puffer_shaped"),
        }
        for name, values in got.items()
    }


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true", help="whole trainings instead of cores")
    parser.add_argument("--length", action="store_true", help="cost of Mamba-2 by sequence length")
    parser.add_argument("--plot", type=Path, help="file for the figure of --length")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each contestant")
    args = parser.parse_args()
    torch.set_num_threads(1)
    mode = "peers" if args.peers else "length" if args.length else "cores"
    if args.peers:
        result = peers(args.repeats)
    else:
        result = length(args.repeats, args.plot) if args.length else cores(4 * args.repeats)
    print(json.dumps({"benchmark": "memory", "mode": mode, "repeats": args.repeats, **result, "machine": machine()}))


if __name__ == "__main__":
    main()
