"""Our memory tasks and POMDPs: players with and without memory, and the native backend against single environments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from envs.conftest import Make
from envs.solve_pomdp import blind, omniscient, solve
from envs.test_contract import assert_same, play
from ludus.config.schema import Environment
from ludus.envs.make import make_vector
from ludus.envs.suites import pomdp, recall, small
from ludus.envs.vector import VectorEnv
from ludus.errors import EnvironmentFailed

GAMES = {cls.__name__: levels for cls, levels in recall.GAMES.items()}
IDS = [
    "TMaze-v0",
    "TMaze/Short-v0",
    "ProofOfMemory-v0",
    "PocMemoryEnv-v0",
    *(f"Recall/{game}{level}-v0" for game in GAMES for level in recall.LEVELS),
    *pomdp.VARIANTS,
]
OPTIMAL = {id: best for id, (_, _, best) in pomdp.VARIANTS.items()}
Player = Callable[[np.ndarray, list[Any]], int]
"""An observation and a notebook, which is new in every episode, to an action."""


def mean_return(id: str, player: Player, episodes: int = 100, **fields: Any) -> float:
    """Over the first episode of that many environments."""
    with make_vector(Environment(id=id, num_envs=episodes, **fields)) as env:
        obs, notes = env.reset(range(episodes)), [[] for _ in range(episodes)]
        total, over = np.zeros(episodes), np.zeros(episodes, bool)
        while not over.all():
            result = env.step(np.array([player(o, note) for o, note in zip(obs, notes, strict=True)]))
            total += np.where(over, 0, result.reward)
            over |= result.terminated | result.truncated
            obs = result.obs
        return float(total.mean())


def chance(id: str, episodes: int = 200) -> float:
    """Uniformly random actions."""
    rng = np.random.default_rng(0)
    with make_vector(Environment(id=id)) as env:
        count = int(env.action_space.n)  # type: ignore[attr-defined]
    return mean_return(id, guesser(rng, count), episodes)


def guesser(rng: np.random.Generator, count: int) -> Player:
    def act(obs: np.ndarray, notes: list[Any]) -> int:
        return int(rng.integers(count))

    return act


@pytest.mark.parametrize("id", IDS)
def test_the_native_backend_is_bit_identical_to_single_environments(make: Make, id: str) -> None:
    seeds = [3, 1, 4]
    for fields in ({}, {"max_episode_steps": 7}):
        one, two = (make(id, vectorization=b, num_envs=3, **fields) for b in ("sync", "native"))
        assert one.reward_threshold == two.reward_threshold
        assert one.max_episode_steps == two.max_episode_steps
        assert_same(play(one, 120, seeds=seeds), play(two, 120, seeds=seeds))
        assert_same(play(one, 20, seed=1, seeds=seeds[::-1]), play(two, 20, seed=1, seeds=seeds[::-1]))


def test_a_time_limit_cuts_each_episode_once() -> None:
    with make_vector(Environment(id="LookAndFeel-v0", num_envs=2, max_episode_steps=3, kwargs={"length": 10})) as env:
        env.reset([0, 1])
        assert env.backend == "native"
        cut = [env.step(np.zeros(2, int)).truncated.tolist() for _ in range(6)]
    assert cut == [[False] * 2, [False] * 2, [True] * 2] * 2


def test_auto_is_native_and_its_state_is_saved(make: Make) -> None:
    for id in ("TMaze-v0", "Recall/CountRecallEasy-v0", "Recall/ConcentrationEasy-v0", "Tiger-Theta3-v0"):
        one, other = (make(id, vectorization="auto", num_envs=3, max_episode_steps=17) for _ in range(2))
        assert (one.backend, one.choose_snapshot_method()) == ("native", "api")
        play(one, 33, seeds=[5, 6, 7]), play(other, 5)
        obs = one.snapshot()
        np.testing.assert_array_equal(other.restore(obs), one.restore(obs))
        assert_same(_go_on(one), _go_on(other))
        single = make(id, vectorization="sync", num_envs=1)
        assert single.choose_snapshot_method() == "api"


def _go_on(env: VectorEnv) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(9)
    steps = [env.step(rng.integers(env.action_space.n, size=env.num_envs)) for _ in range(1)]  # type: ignore[attr-defined]
    seen: dict[str, list[Any]] = {"obs": [steps[0].obs.copy()], "reward": [], "terminated": [], "truncated": []}
    for _ in range(150):
        result = env.step(rng.integers(env.action_space.n, size=env.num_envs))  # type: ignore[attr-defined]
        for name in seen:
            seen[name].append(getattr(result, name).copy())
    return {name: np.stack(values) for name, values in seen.items()}


def walker(sign: bool) -> Player:
    """Reads the sign or not, and walks to the junction."""

    def act(obs: np.ndarray, notes: list[Any]) -> int:
        if not notes:
            notes.append(small.UP if obs[0] or not sign else small.DOWN)
        return notes[0] if obs[small.JUNCTION] else small.FORWARD

    return act


@pytest.mark.parametrize("length", [1, 10, 40])
def test_t_maze(length: int) -> None:
    kwargs = {"kwargs": {"length": length}}
    assert mean_return("TMaze-v0", walker(True), **kwargs) == small.OPTIMAL
    assert abs(mean_return("TMaze-v0", walker(False), 400, **kwargs) - small.MEMORYLESS) < 0.15
    steps = 0
    with make_vector(Environment(id="TMaze-v0", num_envs=1, **kwargs)) as env:
        obs = env.reset([0])
        sign = obs[0].copy()
        while not env.step(np.array([small.FORWARD])).obs[0, small.JUNCTION]:
            steps += 1
    assert steps + 1 == length and sign[: small.CORRIDOR].sum() == 1  # so long is the sign out of sight


def test_t_maze_walls_and_patience() -> None:
    assert chance("TMaze-v0") == pytest.approx(-2, abs=0.4)  # two bumps for every step ahead
    with make_vector(Environment(id="TMaze/Short-v0", num_envs=1)) as env:
        env.reset([0])
        results = [env.step(np.array([small.UP]))]
        assert results[0].reward[0] == pytest.approx(-0.1) and results[0].final_obs is None
        steps = 1
        while not env.step(np.array([small.UP])).truncated[0]:
            steps += 1
        assert steps + 1 == small.LENGTHS * 10 + 10


def finder(remembers: bool) -> Player:
    def act(obs: np.ndarray, notes: list[Any]) -> int:
        if obs[2] and remembers:
            notes.append(small.RIGHT if obs[2] > 0 else small.LEFT)
        return notes[-1] if notes else small.RIGHT

    return act


def ditherer(obs: np.ndarray, notes: list[Any]) -> int:
    notes.append(obs)
    return len(notes) % 2


@pytest.mark.parametrize("length", [0, 1, 40])
def test_proof_of_memory(length: int) -> None:
    kwargs = {"kwargs": {"length": length}}
    assert mean_return("ProofOfMemory-v0", finder(True), **kwargs) == small.OPTIMAL
    assert abs(mean_return("ProofOfMemory-v0", finder(False), 400, **kwargs) - small.MEMORYLESS) < 0.15
    assert mean_return("ProofOfMemory-v0", ditherer, 5, **kwargs) == pytest.approx(-1)


def test_proof_of_memory_shows_hides_and_freezes() -> None:
    with make_vector(Environment(id="ProofOfMemory-v0", num_envs=1, kwargs={"length": 3})) as env:
        seen = [env.reset([0])[0].copy()]
        seen += [env.step(np.array([small.RIGHT])).obs[0].copy() for _ in range(6)]
    goals = [bool(obs[0]) for obs in seen]
    assert goals == [True, True, *[False] * 5]
    places = np.diff([obs[1] for obs in seen])
    np.testing.assert_allclose(
        places, [0, 0, 0, 0, 0.2, 0.2], atol=1e-6
    )  # the move after three blank ones is the first


def suit(obs: np.ndarray) -> int:
    return int(obs[: recall.SUITS].argmax())


def keep_all(obs: np.ndarray, notes: list[Any], answer: Callable[[list[Any]], int]) -> int:
    notes.append(obs.copy())
    return answer(notes)


PLAYERS: dict[str, Callable[[list[Any], int], int]] = {
    "RepeatPrevious": lambda notes, k: suit(notes[-1 - k]) if len(notes) > k else 0,
    "RepeatFirst": lambda notes, _: suit(notes[0]),
    "Autoencode": lambda notes, k: suit(notes[k - 1 - (len(notes) - 1 - k)]) if notes[-1][recall.SUITS] else 0,
    "CountRecall": lambda notes, k: sum(int(note[int(notes[-1][k:].argmax())]) for note in notes),
}


def _cases() -> Iterator[tuple[str, Player]]:
    for game in PLAYERS:
        levels = GAMES[game]
        for level, kwargs in zip(recall.LEVELS, levels, strict=True):
            k = kwargs.get("k") or kwargs.get("kinds") or recall.DECK * kwargs["decks"]
            answer = PLAYERS[game]
            yield (
                f"Recall/{game}{level}-v0",
                lambda obs, notes, answer=answer, k=k: keep_all(obs, notes, lambda n: answer(n, k)),
            )


@pytest.mark.parametrize(("id", "player"), list(_cases()))
def test_card_games_with_perfect_memory_and_with_chance(id: str, player: Player) -> None:
    assert mean_return(id, player, 2) == pytest.approx(recall.OPTIMAL, abs=1e-4)
    game = id.removeprefix("Recall/").removesuffix("-v0")
    cls, level = next((name, game.removeprefix(name)) for name in GAMES if game.startswith(name))
    task = getattr(recall, cls)(1, **GAMES[cls][recall.LEVELS.index(level)])
    assert chance(id, 40) == pytest.approx(task.chance, abs=0.07)
    forgetful = mean_return(id, lambda obs, _: min(suit(obs), task.action_space.n - 1), 10)
    assert forgetful < 0.2


class Looker:
    """Looks at every card once, then takes the pairs it knows."""

    def __init__(self, pairs: int) -> None:
        self.cards, self.kinds = 2 * pairs, pairs + 1

    def __call__(self, obs: np.ndarray, notes: list[Any]) -> int:
        if not notes:
            notes += [{}, None]
        known, first = notes
        shown = obs.reshape(self.cards, self.kinds).argmax(axis=1)
        known.update({i: int(face) for i, face in enumerate(shown) if face})
        action = self._choose(known, first, shown)
        notes[1] = action if first is None else None
        return action

    def _choose(self, known: dict[int, int], first: int | None, shown: np.ndarray) -> int:
        if first is not None:  # the other one of the pair, if it is known
            mates = [i for i, face in known.items() if i != first and face == known[first]]
            unknown = [i for i in range(self.cards) if i not in known]
            return (mates or unknown)[0]
        down = [i for i in range(self.cards) if not shown[i] or not self._settled(i, shown)]
        pairs = [i for i in down if i in known and any(j != i and known.get(j) == known[i] for j in down)]
        unknown = [i for i in range(self.cards) if i not in known]
        return (pairs or unknown)[0]

    @staticmethod
    def _settled(i: int, shown: np.ndarray) -> bool:
        return sum(int(face == shown[i]) for face in shown) == 2


@pytest.mark.parametrize("pairs", [2, 4, 8, 16])
def test_concentration(pairs: int) -> None:
    fields = {"kwargs": {"pairs": pairs}}
    best = mean_return("Recall/ConcentrationEasy-v0", Looker(pairs), 40, **fields)
    assert best == pytest.approx(recall.OPTIMAL)
    rng = np.random.default_rng(0)
    random = mean_return("Recall/ConcentrationEasy-v0", guesser(rng, 2 * pairs), 100, **fields)
    assert random < recall.THRESHOLD - 0.2


def test_concentration_turns_cards_down_again() -> None:
    task = recall.Concentration(1, pairs=2)
    task.begin(0, np.random.default_rng(0))
    faces = task._faces[0]
    one = 0
    other = next(i for i in range(1, 4) if faces[i] != faces[one])
    mate = next(i for i in range(1, 4) if faces[i] == faces[one])

    def up() -> list[int]:
        return np.flatnonzero(task._up[0]).tolist()

    for action, open_cards, reward in (
        (one, [one], 0),
        (one, [one], 0),  # it lies open: nothing happens
        (other, sorted([one, other]), 0),
        (one, [one], 0),
        (mate, sorted([one, mate]), 0.5),
        (mate, sorted([one, mate]), 0),
    ):
        task.step(np.array([action]))
        assert (up(), float(task.reward[0])) == (open_cards, reward)


def models() -> dict[str, pomdp.PomdpModel]:
    found: dict[str, pomdp.PomdpModel] = {}
    for id in OPTIMAL:
        with make_vector(Environment(id=id, num_envs=1)) as env:
            task: Any = env._task  # type: ignore[attr-defined]
            found[id] = task.model
    return found


def test_pomdps_are_probabilities_and_their_optima_are_solved() -> None:
    for id, model in models().items():
        for table in (model.start, model.transition, model.emission):
            np.testing.assert_allclose(table.sum(axis=-1), 1)
        if id.startswith("RiverSwim"):
            assert blind(model, np.array([0, 1])) == pytest.approx(OPTIMAL[id], abs=1e-5)
            assert omniscient(model) - OPTIMAL[id] < 1e-5  # who sees everything is no better off
        else:
            assert solve(model) == pytest.approx(OPTIMAL[id], abs=1e-5)
            assert OPTIMAL[id] <= omniscient(model)
            best = max(blind(model, choice) for choice in np.eye(len(model.reward)))
            assert best < OPTIMAL[id] - 0.4


def test_solve_knows_a_problem_solved_by_hand() -> None:
    """One listening to a tiger that is always heard, then the door: -0.1 + 1, and so on."""
    assert solve(pomdp.tiger(0.5, horizon=2)) == pytest.approx(0.9)
    assert solve(pomdp.tiger(0.5, horizon=4)) == pytest.approx(1.8)
    assert solve(pomdp.tiger(0.0, horizon=3)) == pytest.approx(-0.3)  # nothing to hear: do not open


class Believer:
    """Keeps a belief and takes the action that `solve` finds best from there."""

    def __init__(self, model: pomdp.PomdpModel) -> None:
        self.model, self.memo = model, {}

    def __call__(self, obs: Any, notes: list[Any]) -> int:
        model = self.model
        if not notes:
            notes += [model.start, None, 0]
        belief, action, age = notes
        if action is not None:
            belief = (belief @ model.transition[action]) * model.emission[action][:, int(obs)]
            belief = belief / belief.sum()
        key = (tuple(belief.round(6)), age)
        if key not in self.memo:
            self.memo[key] = self._best(belief, model.horizon - age)
        notes[:] = [belief, self.memo[key], age + 1]
        return self.memo[key]

    def _best(self, belief: np.ndarray, left: int) -> int:
        values = []
        for action in range(len(self.model.reward)):
            value = float(belief @ self.model.reward[action])
            after = (belief @ self.model.transition[action])[:, None] * self.model.emission[action]
            for branch in after.T if left > 1 else ():
                if branch.sum() > 0:
                    rest = self.model._replace(start=branch / branch.sum(), horizon=left - 1)
                    value += branch.sum() * solve(rest)
            values.append(value)
        return int(np.argmax(values))


@pytest.mark.parametrize(
    ("id", "model", "near"),
    [
        ("Tiger-Theta4-v0", pomdp.tiger(0.4, horizon=8), 0.3),
        ("SparseRewardPOMDP-Random3-v0", pomdp.sparse(6), 0.12),
    ],
)
def test_played_by_belief_a_pomdp_returns_its_optimum(id: str, model: pomdp.PomdpModel, near: float) -> None:
    fields = {"kwargs": {"horizon": model.horizon}, "max_episode_steps": model.horizon}
    mean = mean_return(id, Believer(model), 1000, **fields)
    assert mean == pytest.approx(solve(model), abs=near)


@pytest.mark.parametrize("id", OPTIMAL)
def test_random_play_of_a_pomdp_returns_what_its_tables_say(id: str) -> None:
    model = models()[id]
    count = len(model.reward)
    expected = blind(model, np.full(count, 1 / count))
    assert chance(id, 500) == pytest.approx(expected, abs=max(0.1, 0.06 * abs(expected)))


def test_pomdps_end_at_their_horizon_with_one_hot_time(make: Make) -> None:
    wrappers = ({"id": "one_hot"}, {"id": "time_aware"})
    one, two = (make("Tiger-Theta2-v0", vectorization=b, num_envs=2, wrappers=wrappers) for b in ("sync", "native"))
    assert_same(play(one, 50), play(two, 50))
    assert two.backend == "native" and two.observation_space.shape == (5,)
    seen = play(two, 40)
    assert (seen["terminated"].sum(axis=0) == 2).all() and seen["terminated"][19].all()
    np.testing.assert_array_equal(seen["obs"][0], [[0, 0, 0, 1, 0]] * 2)
    assert (seen["final_obs"][19, :, -1] == 1).all() and (seen["obs"][20, :, -1] == 0).all()
    np.testing.assert_allclose(seen["obs"][5, :, -1], 0.25)
    two.restore(two.snapshot())
    np.testing.assert_array_equal(two.step(np.zeros(2, int)).obs[:, -1], np.float32(1 / 20))


@pytest.mark.parametrize(
    ("id", "kwargs"),
    [
        ("TMaze-v0", {"length": 0}),
        ("ProofOfMemory-v0", {"length": -1}),
        ("Recall/RepeatPreviousEasy-v0", {"k": 52}),
        ("Recall/RepeatFirstEasy-v0", {"decks": 0}),
        ("Recall/CountRecallEasy-v0", {"kinds": 5}),
        ("Recall/ConcentrationEasy-v0", {"pairs": 1}),
        ("Tiger-Theta2-v0", {"theta": 0.6}),
        ("RiverSwim-Hard-v0", {"states": 2}),
    ],
)
def test_bad_arguments(id: str, kwargs: dict[str, Any]) -> None:
    with pytest.raises(EnvironmentFailed, match="making it raised ValueError"):
        make_vector(Environment(id=id, kwargs=kwargs))
