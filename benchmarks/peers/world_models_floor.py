"""The floor of Dreamer's update: its matrix products and convolutions, and nothing else; argv: task.

One eager update of Ludus is watched, and the products of that update are repeated on random numbers of the same
shapes, in the same order. No activation, norm, sample, loss or optimizer, no gradient bookkeeping: an update with this
architecture in float32 does at least this work. It learns nothing.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from products import Call, Products, repeat
from world_model_task import WARM_UP, UpdateClock, WorldModelTask
from world_models_ludus import Noise, experiment, parameters

import ludus
from ludus.config.compose import load
from ludus.experiment import build
from ludus.orchestration.callbacks import Callback
from ludus.run import Run


class Watch(Callback):
    """Forgets what came before the newest update."""

    def __init__(self, products: Products) -> None:
        self.products, self.newest = products, list[Call]()

    def on_report(self, run: Run, hook: str, report: Any) -> None:
        self.newest, self.products.calls = self.products.calls, []


def main() -> None:
    """Watch an update, then repeat its products as often as the task has updates."""
    task = WorldModelTask.from_argv()
    gym.register("Noise-v0", Noise)
    products = Products()
    watch = Watch(products)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "task.json")
        file.write_text(json.dumps(experiment(WorldModelTask(**{**vars(task), "updates": 1}))))
        run = build(load(str(file), ["runtime.compile=never", *sys.argv[2:]]).config, callbacks=[watch])
        with products:
            run.run()
    clock = UpdateClock()
    with torch.inference_mode():
        for _ in range(WARM_UP + task.updates):
            repeat(watch.newest)
            clock.mark()
    count = len(watch.newest)
    clock.answer(parameters(run), version=f"{ludus.__version__}, {count} products", torch=torch.__version__)
    run.close()


if __name__ == "__main__":
    main()
