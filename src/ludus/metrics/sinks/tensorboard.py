"""TensorBoard event files, by the writer torch brings; only the `tensorboard` package itself is extra."""

from __future__ import annotations

from pathlib import Path

from ludus.errors import MissingExtra
from ludus.metrics.names import COLUMNS
from ludus.metrics.sinks import Row, Sink


class TensorBoard(Sink):
    """Every metric over `x_axis`, one of the columns of a row."""

    def __init__(self, folder: Path, x_axis: str = "env_steps") -> None:
        self._x_axis = x_axis
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("logging.tensorboard", "tensorboard") from None
        self._writer = SummaryWriter(str(folder), flush_secs=10)

    def write(self, row: Row) -> None:
        """Hand the row to the writer's thread."""
        step = int(row[self._x_axis])
        for key, value in row.items():
            if key not in COLUMNS and not isinstance(value, str):
                self._writer.add_scalar(key, value, step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()
