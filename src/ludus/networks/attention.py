"""Attention over a sliding window of an episode, with relative positions (Dai et al. 2019, arXiv:1901.02860) or none.

Every step sees itself and the `memory` steps of its own episode before it, however long the episode or the sequence:
one call over T steps then equals T calls over one. Steps are taken in chunks, so that the cost is linear in T.
Shapes: T time, B batch, M memory, W = M + Q keys of a chunk, Q queries of a chunk, K chunks, N heads, P head width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

LARGEST_CHUNK = 64


class AttentionWindow:
    """Which steps may attend to which; all layers of one call share it."""

    def __init__(self, first_TB: Tensor, length_B: Tensor, memory: int) -> None:
        self.memory, self.steps = memory, len(first_TB)
        self.chunk = min(self.steps, max(memory, 1), LARGEST_CHUNK)
        self.chunks = -(-self.steps // self.chunk)
        episode_TB = first_TB.long().cumsum(0)
        age = torch.arange(memory, 0, -1, device=first_TB.device)
        known_BM = torch.where(age <= length_B.unsqueeze(1), 0, -1)  # the state continues episode 0
        keys_BKW = self.keys(torch.cat([known_BM.t(), episode_TB]).unsqueeze(-1))[..., 0]
        queries_BKQ = self.queries(episode_TB.unsqueeze(-1))[..., 0]
        hidden = keys_BKW.unsqueeze(2) != queries_BKQ.unsqueeze(3)
        if self.chunk > 1:  # query i sees keys i ... i + M
            seen_QW = torch.ones(hidden.shape[-2:], dtype=torch.bool, device=age.device).triu_().tril_(memory)
            hidden |= ~seen_QW
        self.mask_BK1QW = torch.zeros(hidden.shape, device=age.device).masked_fill_(hidden, -torch.inf).unsqueeze(2)
        self._steps = torch.arange(self.steps, device=age.device).unsqueeze(1)
        self._starts_TB = torch.where(first_TB, self._steps, -length_B)  # of the open episode: before this call

    def queries(self, x_TBX: Tensor) -> Tensor:
        """Queries [B, K, Q, X] of all chunks, zeros after the last step."""
        missing = self.chunks * self.chunk - self.steps
        x = pad(x_TBX, (0, 0, 0, 0, 0, missing)) if missing else x_TBX
        return x.unflatten(0, (self.chunks, self.chunk)).movedim(2, 0)

    def keys(self, x_SBX: Tensor) -> Tensor:
        """Keys [B, K, M + Q, X] of all chunks, from S = M + T remembered and new steps; they overlap."""
        missing = self.chunks * self.chunk - self.steps
        x = pad(x_SBX, (0, 0, 0, 0, 0, missing)) if missing else x_SBX
        return x.unfold(0, self.memory + self.chunk, self.chunk).permute(1, 0, 3, 2)

    def positions(self) -> Tensor:
        """[T, B]: position of each step in its episode."""
        return self._steps - self._starts_TB.cummax(0).values

    def length_after(self) -> Tensor:
        """[B]: length of the open episode after this call."""
        return self.steps - self._starts_TB.amax(0)


class Attention(nn.Module):
    """Multi-head attention; with distances the scores are (q + u) k + (q + v) r, r a projection of their sinusoids."""

    sinusoids: Tensor

    def __init__(self, width: int, heads: int, memory: int, *, distances: bool) -> None:
        super().__init__()
        self.heads, self.memory = heads, memory
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.position = nn.Linear(width, width, bias=False) if distances else None
        self.output = nn.Linear(width, width, bias=False)
        for layer in (self.query, self.key_value, self.position, self.output):
            if layer is not None:
                nn.init.xavier_uniform_(layer.weight)
        if distances:
            self.content_bias = nn.Parameter(torch.zeros(width))
            self.position_bias = nn.Parameter(torch.zeros(width))
            self.register_buffer("sinusoids", sinusoids(torch.arange(memory, -1, -1), width), persistent=False)

    def forward(self, x_SBH: Tensor, window: AttentionWindow) -> Tensor:
        """Attended values [T, B, H] for the last T of S = M + T inputs."""
        weights_BKNQW, v_BKWH = self.weights(x_SBH, window)
        y_BKQH = (weights_BKNQW @ self._split(v_BKWH)).transpose(2, 3).flatten(3)
        return self.output(y_BKQH.flatten(1, 2)[:, : window.steps].transpose(0, 1))

    def weights(self, x_SBH: Tensor, window: AttentionWindow) -> tuple[Tensor, Tensor]:
        """How much each query attends to each key of its chunk [B, K, N, Q, W], and the values [B, K, W, H]."""
        q_TBH = self.query(x_SBH[self.memory :])
        k_BKWH, v_BKWH = window.keys(self.key_value(x_SBH)).chunk(2, -1)
        q_BKQH = window.queries(q_TBH)
        scores_BKNQW = self._scores(q_BKQH, self._split(k_BKWH).transpose(-1, -2)) + window.mask_BK1QW
        return scores_BKNQW.softmax(-1), v_BKWH

    def _scores(self, q_BKQH: Tensor, k_BKNPW: Tensor) -> Tensor:
        scale = (q_BKQH.shape[-1] / self.heads) ** -0.5
        if self.position is None:
            return self._split(q_BKQH * scale) @ k_BKNPW
        content = self._split((q_BKQH + self.content_bias) * scale) @ k_BKNPW
        distance_NMP = self.position(self.sinusoids).unflatten(-1, (self.heads, -1)).transpose(0, 1)
        position = self._split((q_BKQH + self.position_bias) * scale) @ distance_NMP.transpose(-1, -2)
        return content + _skew(position)

    def _split(self, x_BKXH: Tensor) -> Tensor:
        return x_BKXH.unflatten(-1, (self.heads, -1)).transpose(2, 3)


def _skew(position: Tensor) -> Tensor:
    """[..., Q, M + 1] by distance, farthest first -> [..., Q, M + Q] by key; keys out of the window get 0.

    Query i has keys i ... i + M. Rows padded to M + Q + 1 and read as rows of M + Q are shifted by one step each.
    """
    *batch, queries, reach = position.shape
    keys = reach - 1 + queries
    flat = pad(position, (0, queries)).flatten(-2)
    return flat[..., : queries * keys].reshape(*batch, queries, keys)


def sinusoids(position: Tensor, width: int) -> Tensor:
    """[..., H] for positions [...]."""
    rates = torch.exp(torch.arange(0, width, 2, device=position.device) * (-math.log(10_000.0) / width))
    angle = position.unsqueeze(-1) * rates
    return torch.cat([torch.sin(angle), torch.cos(angle)], -1)[..., :width]
