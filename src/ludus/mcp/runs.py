"""Runs as an agent may see them: no file that a link in a run folder would fetch from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ludus.archive import history, query
from ludus.archive.index import Index
from ludus.archive.record import Record
from ludus.archive.store import RunFolder
from ludus.errors import ConfigError
from ludus.inspector.runs import leaves, refuse_leaving
from ludus.text import clean, did_you_mean

_BEST, _GLOB = "@best", "*?["
_ROWS = 2_000


class SafeIndex(Index):
    """The index without runs whose links lead out of their folders; asked for by name, such a run is refused."""

    def records(self, patience: float = math.inf) -> list[Record]:
        """Every run but those."""
        return [record for record in super().records(patience) if not leaves(record.folder, deep=False)]

    def folder(self, reference: str) -> RunFolder:
        """The folder of one run, whose files may be read."""
        if reference.startswith(_BEST):
            reference = super().get(_BEST).id + reference.removeprefix(_BEST)
        found = RunFolder.load(self.root, reference)
        refuse_leaving(found.path)
        return found

    def get(self, reference: str) -> Record:
        """The one run of a reference."""
        return super().get(self.folder(reference).id)

    def pick(self, words: Sequence[str]) -> list[Record]:
        """The runs that references, globs and conditions name."""
        for word in words:
            if not query.is_filter(word) and not any(sign in word for sign in _GLOB):
                self.folder(word)
        return super().pick(words)


def refuse_unknown(record: Record, metric: str) -> None:
    """Refuse a metric that no row of a run has; the nearest one is named."""
    if next(history.rows(record.folder, metric), None) is None:
        known = history.metric_names(history.sampled(record.folder, _ROWS))
        raise ConfigError(record.id, f"has no metric '{clean(metric, 80)}'", did_you_mean(metric, known))
