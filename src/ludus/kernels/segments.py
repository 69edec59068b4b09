"""Sequences cut at episode starts and sorted by length, for recurrences that run step by step.

All steps with the same place in their piece are one slice, as in torch's packed sequences: eight sequences of 128 steps
with episodes of ten are ten steps of a hundred rows each. Nothing is reset on the way: a piece that begins inside a
sequence begins with zeros.
Shapes: T time, B batch, R = T B rows, N pieces.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ludus.types import Array


class Segments:
    """Where every step of [T, B] went, and back."""

    def __init__(self, first_TB: Array) -> None:
        T, B = first_TB.shape
        starts_BT = first_TB.T.copy()
        starts_BT[:, 0] = True
        begin_N = np.flatnonzero(starts_BT)
        length_N = np.diff(begin_N, append=T * B)
        order_N = np.argsort(-length_N, kind="stable")
        rank_N = np.empty_like(order_N)
        rank_N[order_N] = np.arange(len(order_N))
        shorter = np.searchsorted(length_N[order_N[::-1]], np.arange(length_N.max()), side="right")
        self.count_K = len(order_N) - shorter
        """Rows of each slice: pieces that are longer than its place."""
        bounds = np.concatenate([[0], np.cumsum(self.count_K)])
        self.slices = [slice(low, high) for low, high in pairwise(bounds.tolist())]
        place_R = np.arange(T * B) - np.repeat(begin_N, length_N)
        rank_R = np.repeat(rank_N, length_N)
        self.row_TB = (bounds[place_R] + rank_R).reshape(B, T).T
        self.pieces = len(order_N)
        rank_BT = rank_R.reshape(B, T)
        self.first_B, self.last_B = rank_BT[:, 0], rank_BT[:, -1]
        """The pieces with which each sequence begins and ends."""
        self._goes_on_B = ~first_TB[0][:, None]
        self._cut = self.pieces > B
        self._step_R = np.argsort(self.row_TB, axis=None) if self._cut else None

    def pack(self, x_TBX: Array) -> Array:
        """[R, X]."""
        x_RX = x_TBX.reshape(-1, x_TBX.shape[-1])
        return x_RX if self._step_R is None else x_RX[self._step_R]

    def unpack(self, x_RX: Array) -> Array:
        """[T, B, X]."""
        return x_RX[self.row_TB] if self._cut else x_RX.reshape(*self.row_TB.shape, -1)

    def start(self, state_BH: Array) -> Array:
        """[N, H]: what each piece begins with."""
        start_NH = np.zeros((self.pieces, state_BH.shape[1]), state_BH.dtype)
        start_NH[self.first_B] = state_BH * self._goes_on_B
        return start_NH

    def start_gradient(self, d_start_NH: Array) -> Array:
        """[B, H]: of the state, from that of `start`."""
        return d_start_NH[self.first_B] * self._goes_on_B

    def before(self, start_NH: Array, after_RH: Array) -> Array:
        """[R, H]: the state before each step, from that after it."""
        earlier = np.arange(self.pieces, len(after_RH)) - np.repeat(self.count_K[:-1], self.count_K[1:])
        return np.concatenate([start_NH, after_RH[earlier]])
