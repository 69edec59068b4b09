"""Attention over a sliding window of an episode with relative positions (Dai et al. 2019, arXiv:1901.02860).

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


class Window:
    """Which steps may see which, for one call of every layer."""

    def __init__(self, first_TB: Tensor, length_B: Tensor, memory: int) -> None:
        self.memory, self.steps = memory, len(first_TB)
        self.chunk = min(self.steps, max(memory, 1), LARGEST_CHUNK)
        self.chunks = -(-self.steps // self.chunk)
        episode_TB = first_TB.long().cumsum(0)
        age = torch.arange(memory, 0, -1, device=first_TB.device)
        known_BM = torch.where(age <= length_B.unsqueeze(1), 0, -1)  # the state continues episode 0
        keys_BKW = self.keys(torch.cat([known_BM.t(), episode_TB]).unsqueeze(-1))[..., 0]
        queries_BKQ = self.queries(episode_TB.unsqueeze(-1))[..., 0]
        other = keys_BKW.unsqueeze(2) != queries_BKQ.unsqueeze(3)
        self.mask_BK1QW = torch.zeros(other.shape, device=other.device).masked_fill_(other, -torch.inf).unsqueeze(2)

    def queries(self, x_TBX: Tensor) -> Tensor:
        """[B, K, Q, X], zeros behind the last step."""
        missing = self.chunks * self.chunk - self.steps
        x = pad(x_TBX, (0, 0, 0, 0, 0, missing)) if missing else x_TBX
        return x.unflatten(0, (self.chunks, self.chunk)).movedim(2, 0)

    def keys(self, x_SBX: Tensor) -> Tensor:
        """[B, K, M + Q, X] of memory and steps S = M + T: overlapping views."""
        missing = self.chunks * self.chunk - self.steps
        x = pad(x_SBX, (0, 0, 0, 0, 0, missing)) if missing else x_SBX
        return x.unfold(0, self.memory + self.chunk, self.chunk).permute(1, 0, 3, 2)

    def length_after(self, first_TB: Tensor, length_B: Tensor) -> Tensor:
        """Steps of the open episode that the memory holds after this call."""
        since = first_TB.flip(0).long().argmax(0) + 1
        return torch.where(first_TB.any(0), since, length_B + self.steps).clamp(max=self.memory)


class RelativeAttention(nn.Module):
    """Multi-head attention; scores (q + u) k + (q + v) r, with r a projection of the sinusoid of the distance."""

    def __init__(self, width: int, heads: int, memory: int) -> None:
        super().__init__()
        self.heads, self.memory = heads, memory
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.position = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(width))
        self.position_bias = nn.Parameter(torch.zeros(width))
        for layer in (self.query, self.key_value, self.position, self.output):
            nn.init.xavier_uniform_(layer.weight)
        self.register_buffer("sinusoids", _sinusoids(memory, width), persistent=False)

    def forward(self, x_SBH: Tensor, window: Window) -> Tensor:
        """Attended values [T, B, H] for the last T of S = M + T inputs."""
        q_TBH = self.query(x_SBH[self.memory :])
        k_BKWH, v_BKWH = window.keys(self.key_value(x_SBH)).chunk(2, -1)
        q_BKQH = window.queries(q_TBH)
        scale = (q_TBH.shape[-1] / self.heads) ** -0.5
        content = self._split((q_BKQH + self.content_bias) * scale) @ self._split(k_BKWH).transpose(-1, -2)
        distance_NMP = self.position(self.sinusoids).unflatten(-1, (self.heads, -1)).transpose(0, 1)
        position = self._split((q_BKQH + self.position_bias) * scale) @ distance_NMP.transpose(-1, -2)
        scores_BKNQW = content + _skew(position) + window.mask_BK1QW
        y_BKQH = (scores_BKNQW.softmax(-1) @ self._split(v_BKWH)).transpose(2, 3).flatten(3)
        return self.output(y_BKQH.flatten(1, 2)[:, : window.steps].transpose(0, 1))

    def _split(self, x_BKXH: Tensor) -> Tensor:
        return x_BKXH.unflatten(-1, (self.heads, -1)).transpose(2, 3)


def _skew(position: Tensor) -> Tensor:
    """[..., Q, M + 1] by distance, farthest first -> [..., Q, M + Q] by key; keys out of the window get -inf.

    Query i sees keys i ... i + M. Rows padded to M + Q + 1 and read as rows of M + Q are shifted by one step each.
    """
    *batch, queries, reach = position.shape
    keys = reach - 1 + queries
    flat = pad(position, (0, queries), value=-torch.inf).flatten(-2)
    return flat[..., : queries * keys].reshape(*batch, queries, keys)


def _sinusoids(memory: int, width: int) -> Tensor:
    """[M + 1, H] for the distances M, ..., 0."""
    distance = torch.arange(memory, -1, -1.0).unsqueeze(1)
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    return torch.cat([torch.sin(distance * rates), torch.cos(distance * rates)], 1)[:, :width]
