"""A1: where two configs share a package, the machine code of either computes the update of both."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from updates import first_update

CHANGES = [
    ("CartPole-v1", "dqn", {"atoms": 5}, {"atoms": 5}),  # nothing differs
    ("CartPole-v1", "dqn", {"atoms": 5, "v_max": 200.0}, {"atoms": 5, "v_max": 10.0}),
    ("CartPole-v1", "dqn", {"atoms": 5, "v_min": 0.0}, {"atoms": 5, "v_min": -5.0}),
    ("Pendulum-v1", "sac", {"target_entropy": -1.0}, {"target_entropy": -3.0}),
]
for env, algorithm, one, other in CHANGES:
    key, function, example = first_update(env, algorithm, **one)
    theirs, changed, given = first_update(env, algorithm, **other)
    if key != theirs:
        continue
    traced = make_fx(function)(*[tensor.clone() for tensor in example])  # what is compiled under this key
    right, wrong = [tensor.clone() for tensor in given], [tensor.clone() for tensor in given]
    for ours, packaged in zip([*changed(*right), *right], [*traced(*wrong), *wrong], strict=True):
        same = torch.allclose(ours, packaged, atol=1e-6, rtol=1e-5)
        assert same, f"{algorithm} {other} is learned with the machine code of {one}"
