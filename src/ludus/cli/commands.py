"""The table of commands: which function each one is, and what `ludus --help` says about it."""

from __future__ import annotations

COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("ludus.cli.train:train", "Train an experiment."),
    "sweep": ("ludus.cli.sweep:sweep", "Search over settings; every trial is an ordinary run."),
    "tune": ("ludus.cli.tune:tune", "Search for better settings, and try them on fresh seeds."),
    "resume": ("ludus.cli.resume:resume", "Continue a run, bit for bit."),
    "verify": ("ludus.cli.verify:verify", "Retrain a run and check that every number matches."),
    "play": ("ludus.cli.play:play", "Watch a trained policy, or record it."),
    "evaluate": ("ludus.cli.evaluate:evaluate", "Measure a checkpoint over many episodes."),
    "record": ("ludus.cli.record:record", "Record demonstrations as a data set."),
    "data": ("ludus.cli.data:app", "Look into data sets."),
    "imagine": ("ludus.cli.imagine:imagine", "See what a world model predicts, beside what happened."),
    "list": ("ludus.cli.listing:list_runs", "List runs; filter and sort by anything."),
    "show": ("ludus.cli.show:show", "Show one run in full."),
    "compare": ("ludus.cli.compare:compare", "Compare runs over their seeds, with plots."),
    "export": (
        "ludus.cli.export:export",
        "Export runs as csv, json, markdown or LaTeX, a policy as ONNX.",
    ),
    "publish": ("ludus.cli.publish:publish", "Publish a run on the Hugging Face Hub."),
    "pull": ("ludus.cli.pull:pull", "Bring a published run here, safely."),
    "report": ("ludus.cli.report:report", "Write the report of a run."),
    "tag": ("ludus.cli.tag:tag", "Label runs."),
    "cleanup": ("ludus.cli.cleanup:cleanup", "Remove checkpoints that are no longer needed; shows the plan first."),
    "index": ("ludus.cli.index:app", "The index of runs."),
    "model": ("ludus.cli.model:model", "Show the network of an experiment."),
    "env": ("ludus.cli.env:app", "List, show and check environments."),
    "smoke": ("ludus.cli.smoke:smoke", "Run every shipped config briefly."),
    "bench": ("ludus.cli.bench:app", "Measure speed on this machine."),
    "doctor": ("ludus.cli.doctor:doctor", "What is installed here, and what is wrong."),
    "mcp": ("ludus.cli.mcp:mcp", "Serve runs to a coding agent."),
    "migrate": ("ludus.cli.migrate:migrate", "Check the version of a config file or run folder."),
    "inspect": ("ludus.cli.inspector:inspect", "Step through episodes and watch runs in the browser."),
    "wandb": ("ludus.cli.wandb:app", "The dashboard of a W&B project."),
    "task": ("ludus.cli.task:app", "Playbooks for recurring tasks."),
    "config": ("ludus.cli.config:app", "Show, check and document configurations."),
}
"""Name -> (function or app, line in `ludus --help`). A new command is one file and one line here."""
WELCOME = "-welcome"
"""Stands for a command line without words, at a terminal."""
FAMILIAR = {
    "enjoy": "ludus play @last",
    "watch": "ludus play @last",
    "run": "ludus train CartPole-v1:ppo",
    "learn": "ludus train CartPole-v1:ppo",
    "eval": "ludus evaluate @last",
    "test": "ludus evaluate @last",
    "validate": "ludus config validate",
    "envs": "ludus env list",
    "runs": "ludus list",
}
"""Commands of other tools -> what to write here."""
