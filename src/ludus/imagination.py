"""What a world model makes of real episodes: rows it observed, and rows it predicted from the actions alone.

An episode is observed from its start. Each time `context` rows or the last prediction are over, the model predicts the
next `horizon` rows open-loop, so that every later row is predicted exactly once.

Reading order: Episode -> dream -> DreamedEpisode -> facts. Shapes: T rows, F features, N predictions side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ludus.components.latent_view import LatentView
from ludus.components.representation import LatentState
from ludus.components.vision_memory import VisionMemory
from ludus.components.world_model import WorldModel
from ludus.types import Array, Tree, to_device, tree_index

HORIZONS = (1, 2, 5, 10, 20, 45)
"""Steps ahead at which errors are told, and the horizon itself."""
ENDS = (0.0, 0.01, 0.1, 0.5, 0.9, 1.0)
"""Bounds of the bins of predicted ends: most rows end nothing."""
ROWS_AT_ONCE = 256
"""Rows that are decoded together."""
Value = Callable[[Tensor], Tensor]
World = WorldModel | LatentView | VisionMemory
HIDDEN = frozenset({"state", "latent"})
"""Parts that are no observations: what is compared where nothing decodes them."""


@dataclass(frozen=True, eq=False)
class Episode:
    """Rows of a real episode, as a world model reads them: what led to an observation stands beside it."""

    obs: Tree
    """[T, ...] as the model sees them, the last one included."""
    action: Array
    """[T, ...] as it is learned from; that of row 0 counts as zero."""
    reward: Array
    """[T] as it is learned from; that of row 0 is none."""
    terminal: Array
    """bool [T]: the episode terminated here."""

    def __len__(self) -> int:
        return len(self.reward)


class Compared(NamedTuple):
    """What was, and what the model made of it, for the same rows."""

    real: Array
    reconstructed: Array
    """Read from states that saw the row."""
    predicted: Array
    """Read from states that saw the last row of the context; within the context like `reconstructed`."""


class Errors(NamedTuple):
    """Mean squared errors [T] of one part of observations."""

    reconstructed: Array
    predicted: Array
    unchanged: Array
    """Of the prediction that nothing changes after the last row that was seen."""


@dataclass(frozen=True, eq=False)
class DreamedEpisode:
    """One episode."""

    ahead: Array
    """int [T]: rows since the last one that the prediction saw; 0 in the context."""
    errors: dict[str, Errors]
    """By part of the observations."""
    shown: dict[str, Compared]
    """The parts themselves, of the context and the first prediction only."""
    reward: Compared
    continues: Compared | None
    """Probability that the episode goes on; None if the model has no such head."""
    value: Compared | None
    """Discounted sum of the rewards that follow; None without a critic."""

    def __len__(self) -> int:
        return len(self.ahead)


@dataclass(frozen=True, eq=False)
class Imagination:
    """Several episodes of one policy, and what the numbers of their observations are called."""

    dreams: list[DreamedEpisode]
    context: int
    horizon: int
    labels: tuple[str, ...]
    """Of the numbers of the part `vector`."""
    images: dict[str, str]
    """Parts that are images, and their names."""
    binary: frozenset[str]
    """Those whose channels say yes or no: one for each kind of thing."""


@torch.no_grad()
def dream(
    world: World, episode: Episode, context: int, horizon: int, discount: float = 1.0, value: Value | None = None
) -> DreamedEpisode:
    """Observe an episode and predict it open-loop after the context; always the likeliest state, nothing is random."""
    device = next(world.parameters()).device
    obs = tree_index(to_device(episode.obs, device), (slice(None), None))
    action = world.act_vector(torch.as_tensor(episode.action, device=device).unsqueeze(1))
    first = torch.zeros(len(episode), 1, dtype=torch.bool, device=device)
    first[0] = True
    seen = world.observe(obs, action, first, world.initial_state(1), None)
    predicted = open_loop(world, seen.states, seen.features, action, context, horizon)

    def compared(real: Array, head: Value) -> Compared:
        return Compared(real, *(head(features)[:, 0].cpu().numpy() for features in (seen.features, predicted)))

    ahead = np.arange(len(episode)) - context
    ahead = np.where(ahead < 0, 0, ahead % horizon + 1)
    errors, shown = observations(world, obs, seen.features, predicted, ahead, context + horizon)
    lives = None
    if world.continues is not None:
        lives = compared(1.0 - episode.terminal, lambda x: world.goes_on(x, discount))
    values = None
    if value is not None:
        last = 0.0 if episode.terminal[-1] else float(value(seen.features[-1]))
        values = compared(returns(episode.reward, discount, last), value)
    reward = compared(episode.reward, world.rewards)
    return DreamedEpisode(ahead, errors, shown, reward, lives, values)


def open_loop(
    world: World, states: LatentState, features: Tensor, action: Tensor, context: int, horizon: int
) -> Tensor:
    """Features [T, 1, F] of predicted rows; those of the context are observed ones."""
    found, rows = features.clone(), len(features)
    starts = torch.arange(context - 1, rows - 1, horizon, device=features.device)
    state = {name: part[starts, 0] for name, part in states.items()}
    for step in range(1, min(horizon, rows - context) + 1):
        reached = starts + step
        state = world.imagine(state, action[reached.clamp(max=rows - 1), 0], None)
        inside = reached < rows
        found[reached[inside], 0] = world.features(state)[inside]
    return found


def observations(
    world: World, obs: Tree, features: Tensor, predicted: Tensor, ahead: Array, shown: int
) -> tuple[dict[str, Errors], dict[str, Compared]]:
    """(errors of all rows, the first `shown` rows) by part; without a decoder the state itself is the only part."""
    before = torch.as_tensor(np.maximum(np.arange(len(ahead)) - ahead, 0), device=features.device)
    errors: dict[str, list[tuple[Array, ...]]] = {}
    kept: dict[str, list[tuple[Array, ...]]] = {}
    for start in range(0, len(ahead), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        seen, guessed = (world.predict(part[rows]) or {"state": part[rows]} for part in (features, predicted))
        truth, still = (
            {"state": features[which]} if "state" in seen else world.targets(tree_index(obs, which))
            for which in (rows, before[rows])
        )
        for name in seen:
            real, guesses = truth[name], (seen[name], guessed[name], still[name])
            squares = [(guess - real).square().flatten(1).mean(1).cpu().numpy() for guess in guesses]
            errors.setdefault(name, []).append(tuple(squares))
            few = [part[: max(shown - start, 0), 0].cpu().numpy() for part in (real, *guesses[:2])]
            kept.setdefault(name, []).append(tuple(few))

    def joined(pieces: list[tuple[Array, ...]]) -> list[Array]:
        return [np.concatenate(column) for column in zip(*pieces, strict=True)]

    return (
        {name: Errors(*joined(pieces)) for name, pieces in errors.items()},
        {name: Compared(*joined(pieces)) for name, pieces in kept.items()},
    )


def returns(reward: Array, discount: float, last: float) -> Array:
    """Discounted sum [T] of the rewards after each row; `last` is worth what follows the last row."""
    found = np.full(len(reward), last, np.float64)
    for t in range(len(reward) - 2, -1, -1):
        found[t] = reward[t + 1] + discount * found[t + 1]
    return found


# ---- numbers -------------------------------------------------------------------------------------


def facts(found: Imagination) -> dict[str, Any]:
    """Plain data: errors by steps ahead, and how far predicted rewards, values and ends can be trusted."""
    dreams = found.dreams
    errors = {found.images.get(part, part): errors_by_horizon(found, part) for part in dreams[0].errors}
    return {
        "episodes": len(dreams),
        "context": found.context,
        "horizon": found.horizon,
        "rows": {"observed": sum(map(len, dreams)), "imagined": sum(int((one.ahead > 0).sum()) for one in dreams)},
        "errors": errors,
        "decoder": not HIDDEN & set(dreams[0].errors),
        "reward": judged(agreement, dreams, [one.reward for one in dreams]),
        "value": judged(agreement, dreams, [one.value for one in dreams]),
        "ends": judged(reliability, dreams, [one.continues for one in dreams]),
    }


def judged(
    judge: Callable[[Array, Array], Any], dreams: list[DreamedEpisode], compared: Sequence[Compared | None]
) -> Any:
    """The judgement of all observed rows but the first of an episode, and of all imagined ones; None without any."""
    known = [one for one in compared if one is not None]
    if not known:
        return None
    seen = [(one.real[1:], one.reconstructed[1:]) for one in known]
    rows = [dream.ahead > 0 for dream in dreams]
    imagined = [(one.real[mask], one.predicted[mask]) for one, mask in zip(known, rows, strict=True)]
    return {
        name: judge(*(np.concatenate(column) for column in zip(*pairs, strict=True)))
        for name, pairs in (("observed", seen), ("imagined", imagined))
    }


def errors_by_horizon(found: Imagination, part: str) -> list[dict[str, Any]]:
    """Mean squared errors of a part; 0 steps ahead is the reconstruction."""
    dreams, horizon = found.dreams, found.horizon
    ahead = np.concatenate([one.ahead for one in dreams])
    errors = Errors(*(np.concatenate(column) for column in zip(*(one.errors[part] for one in dreams), strict=True)))
    table: list[dict[str, Any]] = [
        {"ahead": 0, "rows": len(ahead), "error": float(errors.reconstructed.mean()), "unchanged": None}
    ]
    for steps in sorted({*(h for h in HORIZONS if h < horizon), horizon}):
        rows = ahead == steps
        if rows.any():
            means = {"error": float(errors.predicted[rows].mean()), "unchanged": float(errors.unchanged[rows].mean())}
            table.append({"ahead": steps, "rows": int(rows.sum()), **means})
    return table


def agreement(real: Array, guess: Array) -> dict[str, Any]:
    """Correlation (None if one of them never changes) and mean absolute error."""
    varies = len(real) > 1 and np.ptp(real) > 0 and np.ptp(guess) > 0
    error = float(np.abs(guess - real).mean()) if len(real) else None
    correlation = float(np.corrcoef(real, guess)[0, 1]) if varies else None
    return {"rows": len(real), "correlation": correlation, "mean_absolute_error": error}


def reliability(real: Array, guess: Array) -> list[dict[str, Any]]:
    """Rows by the predicted probability that the episode ends there, and how many of them ended it."""
    predicted, ended = 1 - guess, 1 - real
    bin_of = np.clip(np.searchsorted(ENDS, predicted, side="right") - 1, 0, len(ENDS) - 2)
    found = []
    for i in range(len(ENDS) - 1):
        rows = bin_of == i
        means = [float(column[rows].mean()) if rows.any() else None for column in (predicted, ended)]
        bounds = {"from": ENDS[i], "to": ENDS[i + 1], "rows": int(rows.sum())}
        found.append({**bounds, "predicted": means[0], "observed": means[1]})
    return found
