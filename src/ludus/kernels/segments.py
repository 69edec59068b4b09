"""Sequences cut at episode starts and sorted by length, for recurrences that run step by step.

Steps at the same position of their segment form one slice, as in torch's packed sequences: eight sequences of 128 steps
with episodes of ten steps become ten slices of a hundred rows. Nothing is reset inside a segment: one that begins
inside a sequence begins with zeros.
Shapes: T time, B batch, R = T B rows, N segments.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ludus.types import Array


class Segments:
    """The order of the steps [T, B] in slices, and the way back."""

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
        """Rows of each slice: one for every segment that is long enough."""
        bounds = np.concatenate([[0], np.cumsum(self.count_K)])
        self.slices = [slice(low, high) for low, high in pairwise(bounds.tolist())]
        place_R = np.arange(T * B) - np.repeat(begin_N, length_N)
        rank_R = np.repeat(rank_N, length_N)
        self.row_TB = (bounds[place_R] + rank_R).reshape(B, T).T
        self.count = len(order_N)
        rank_BT = rank_R.reshape(B, T)
        self.first_B, self.last_B = rank_BT[:, 0], rank_BT[:, -1]
        """Numbers of the segments with which each sequence begins and ends."""
        self._goes_on_B = ~first_TB[0][:, None]
        self._cut = self.count > B
        self._step_R = np.argsort(self.row_TB, axis=None) if self._cut else None

    def pack(self, x_TBX: Array) -> Array:
        """Steps [T, B, X] in the order of the slices, [R, X]."""
        x_RX = x_TBX.reshape(-1, x_TBX.shape[-1])
        return x_RX if self._step_R is None else x_RX[self._step_R]

    def unpack(self, x_RX: Array) -> Array:
        """Rows [R, X] as steps again, [T, B, X]."""
        return x_RX[self.row_TB] if self._cut else x_RX.reshape(*self.row_TB.shape, -1)

    def start(self, state_BH: Array) -> Array:
        """[N, H]: the state with which each segment begins."""
        start_NH = np.zeros((self.count, state_BH.shape[1]), state_BH.dtype)
        start_NH[self.first_B] = state_BH * self._goes_on_B
        return start_NH

    def start_gradient(self, d_start_NH: Array) -> Array:
        """[B, H]: the gradient of the state from that of `start`."""
        return d_start_NH[self.first_B] * self._goes_on_B

    def before(self, start_NH: Array, after_RH: Array) -> Array:
        """[R, H]: the state before each row, from the states after all rows."""
        earlier = np.arange(self.count, len(after_RH)) - np.repeat(self.count_K[:-1], self.count_K[1:])
        return np.concatenate([start_NH, after_RH[earlier]])
