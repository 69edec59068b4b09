"""TensorBoard event files, by the writer torch brings; only the `tensorboard` package itself is extra."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ludus.errors import MissingExtra
from ludus.metrics.names import COLUMNS, EVAL_RETURN, RETURN
from ludus.metrics.panels import PANELS
from ludus.metrics.sinks import Row, Sink


class TensorBoard(Sink):
    """Every metric over `x_axis`, one of the columns of a row; panels of curves, and the config as hyperparameters."""

    def __init__(self, folder: Path, x_axis: str = "env_steps", config: Mapping[str, object] | None = None) -> None:
        self._x_axis = x_axis
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("logging.tensorboard", "tensorboard") from None
        self._writer = SummaryWriter(str(folder), flush_secs=10)
        self._writer.add_custom_scalars(
            {
                section: {name: ["Multiline", keys] for name, keys in panels.items()}
                for section, panels in PANELS.items()
            }
        )
        if config is not None:
            self._add_hyperparameters(config)

    def _add_hyperparameters(self, config: Mapping[str, object]) -> None:
        """In the same event file, so that the table leads to these curves; torch's own call makes a second run."""
        from torch.utils.tensorboard.summary import hparams

        values = {path: value for path, value in _leaves(config) if isinstance(value, bool | int | float | str)}
        for summary in hparams(values, dict.fromkeys((EVAL_RETURN, RETURN), 0.0)):
            self._writer._get_file_writer().add_summary(summary)

    def write(self, row: Row) -> None:
        """Hand the row to the writer's thread."""
        step = int(row[self._x_axis])
        for key, value in row.items():
            if key not in COLUMNS and not isinstance(value, str):
                self._writer.add_scalar(key, value, step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


def _leaves(config: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every value by its dotted path; of a schedule its start."""
    for key, value in config.items():
        if isinstance(value, Mapping) and "schedule" in value:
            yield f"{prefix}{key}", value.get("start")
        elif isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
