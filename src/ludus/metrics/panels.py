"""Which curves belong together: the panels of TensorBoard's custom scalars and of the W&B dashboard."""

from __future__ import annotations

from ludus.metrics.names import EVAL_RETURN, RETURN

PANELS: dict[str, dict[str, list[str]]] = {
    "Returns": {
        "return": [EVAL_RETURN, RETURN],
        "episode length": ["train/roll/ep_len/mean", "val/roll/ep_len/mean"],
        "best and worst episode": ["val/roll/ep_rew/best", "val/roll/ep_rew/worst"],
    },
    "Policy": {
        "entropy": ["train/policy/entropy"],
        "KL divergence": ["train/policy/kl"],
        "clipped": ["train/policy/clip_fraction"],
    },
    "Losses": {
        "losses": ["train/loss/policy", "train/loss/value"],
        "gradient": ["train/opt/grads/norm/all"],
    },
    "Speed": {
        "steps per second": ["train/time/fps"],
        "memory": ["train/system/rss_mb"],
    },
}
"""Section -> panel -> metrics; a panel whose metrics a run does not log stays empty."""
