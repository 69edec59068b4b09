"""What several ranks agree on at the end of every epoch: whether to stop, and the settings to go on with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ludus.algorithms import AlgorithmConfig

if TYPE_CHECKING:
    from ludus.run import Run


def agreed_settings(run: Run) -> list[AlgorithmConfig]:
    """This rank's share of rank 0's settings; all ranks stop at the same epoch, for whichever of them got a signal."""
    ranks = run.ranks
    own: dict[str, Any] = {"interrupted": run.interrupted, "stop": run.stop_reason}
    if ranks.rank == 0:
        own["settings"] = [cfg.model_dump(mode="json") for cfg in run.phase_configs]
    heard = ranks.gather(own)  # a signal that comes later counts at the next epoch
    interrupted = next((one["interrupted"] for one in heard if one["interrupted"]), None)
    if interrupted is not None:
        run.interrupt(interrupted)
    run.stop_reason = heard[0]["stop"] or interrupted
    saved = zip(run.phase_configs, heard[0]["settings"], strict=True)
    run.phase_configs = [type(cfg).model_validate(settings) for cfg, settings in saved]
    return [run.own_share(cfg) for cfg in run.phase_configs]
