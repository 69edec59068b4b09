"""Published settings of Dreamer 1 and 2, as departures from those of Dreamer 3, which are the defaults."""

from __future__ import annotations

from typing import Any

LAPROP = {"type": "laprop", "eps": 1e-20, "agc": 0.3}
ELU = {"activation": "elu", "norm": False}
OLDER = {
    "gamma": 0.99, "return_normalization": False, "replay_critic_scale": 0.0, "fused": False, "warmup_updates": 0,
    "actor_lr": 8e-5, "critic_lr": 8e-5, "max_grad_norm": 100.0,
    "observation_scale": 0.5,
}  # fmt: skip
"""What Dreamer 1 and 2 have in common."""
VARIANTS: dict[str, dict[str, Any]] = {
    "v3": {},
    "v2": {
        **OLDER,
        "encoder": {"symlog": False},
        "representation": {
            "type": "rssm", "cell": "gru", "prior_layers": 1, "unimix": 0.0,
            "dynamics_scale": 0.8, "representation_scale": 0.2, "free": "mean",
        },
        "decoder": {"type": "auto", "symlog": False},
        "reward": {"type": "gaussian"},
        "critic": {"type": "gaussian"},
        "actor": {"distribution": "truncated_normal", "unimix": 0.0, "output_scale": 1.0},
        "slow_critic": "target", "slow_every": 100, "tau": 1.0, "entropy_coef": 1e-3, "lr": 3e-4,
        "optimizer": {"type": "adamw", "eps": 1e-5, "weight_decay": 1e-6},
    },
    "v1": {
        **OLDER,
        "encoder": {"symlog": False, **ELU},
        "representation": {
            "type": "rssm", "latent": "gaussian", "cell": "gru", "stoch": 30, "prior_layers": 1,
            "dynamics_scale": 1.0, "representation_scale": 1.0, "free_nats": 3.0, "free": "mean", **ELU,
        },
        "decoder": {"type": "auto", "symlog": False, **ELU},
        "reward": {"type": "gaussian", "layers": 2, **ELU},
        "continues": ELU,
        "critic": {"type": "gaussian", **ELU},
        "actor": {"distribution": "tanh_normal", "min_std": 1e-4, "output_scale": 1.0, "unimix": 0.0, **ELU},
        "actor_gradient": "dynamics", "slow_critic": "none", "entropy_coef": 0.0, "exploration": 0.3, "lr": 6e-4,
        "optimizer": {"type": "adam", "eps": 1e-7},
    },
}  # fmt: skip
"""What each variant fills in where the config says nothing."""
