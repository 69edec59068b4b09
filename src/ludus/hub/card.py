"""README.md of a published run: what it is, how good it is, how to load it; with the front matter the Hub reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ludus.archive.package import CURVE, VIDEO, Manifest
from ludus.config.schema import ExperimentConfig
from ludus.reports.export import markdown_text
from ludus.text import clean, duration


@dataclass(frozen=True)
class Card:
    """A model card."""

    manifest: Manifest
    config: ExperimentConfig
    licence: str
    repo: str
    shown: Sequence[str]
    """Pictures and videos that are there."""

    def text(self) -> str:
        """The whole page."""
        parts = [f"---\n{self.front_matter()}\n---\n", self.head(), self.usage(), self.training(), self.origin()]
        return "\n".join(part for part in parts if part)

    def front_matter(self) -> str:
        """Tags and results, as the Hub's search and leaderboards read them."""
        from huggingface_hub import EvalResult, ModelCardData

        env, algorithm, found = self.config.environment.id, self.config.algorithm.name, self.manifest.evaluation
        results = [
            EvalResult(
                task_type="reinforcement-learning",
                task_name="reinforcement-learning",
                dataset_type=env,
                dataset_name=env,
                metric_type="mean_reward",
                metric_name="mean_reward",
                metric_value=f"{found['mean']:.2f} +/- {found['std']:.2f}",
                verified=False,
            )
        ] if found else None  # fmt: skip
        data = ModelCardData(
            library_name="ludus",
            pipeline_tag="reinforcement-learning",
            license=self.licence,
            tags=[tag for tag in (env, algorithm) if tag] + ["deep-reinforcement-learning", "reinforcement-learning"],
            model_name=self.repo.partition("/")[2] if results else None,
            eval_results=results,
        )
        return str(data.to_yaml()).strip()

    def head(self) -> str:
        """What it is and how good."""
        env, algorithm = self.config.environment.id or "stored steps", self.config.algorithm.name
        lines = [f"# {_safe(algorithm)} on {_safe(env)}", ""]
        if found := self.manifest.evaluation:
            habit = "greedy" if found["deterministic"] else "sampled"
            lines += [f"Mean return **{found['mean']:,.2f} ± {found['std']:,.2f}** over {found['episodes']} fresh "
                      f"episodes with {habit} actions{_interval(found)}.", ""]  # fmt: skip
        lines += [f'<video controls autoplay loop muted src="{VIDEO}"></video>', ""] if VIDEO in self.shown else []
        return "\n".join(lines)

    def usage(self) -> str:
        """How to load it, in three lines of Python or of a shell."""
        lines = ["## Use it", "", "```python", "import ludus", f'policy = ludus.pull("{self.repo}").policy()',
                 "action = policy(observation)", "```", "", "```bash", "pip install 'ludus-rl[hub]'",
                 f"ludus pull {self.repo}", "ludus play @last", "```", ""]  # fmt: skip
        if self.manifest.evaluation:
            lines += [f"`ludus pull {self.repo} --evaluate` plays the same episodes again and compares every return.",
                      "`ludus resume @last` trains on, `ludus train SPEC --init-from @last` begins with these weights.",
                      ""]  # fmt: skip
        if self.manifest.plugins:
            names = ", ".join(f"`{_safe(one['name'])}`" for one in self.manifest.plugins)
            lines += [f"It needs code that is not published here: {names}, given by `--plugin`.", ""]
        return "\n".join(lines)

    def training(self) -> str:
        """How it came about."""
        run = self.manifest.run
        rows = {
            "checkpoint": self.manifest.checkpoint,
            "environment steps of the run": f"{run['env_steps']:,}" if run.get("env_steps") is not None else None,
            "updates of the run": f"{run['updates']:,}" if run.get("updates") is not None else None,
            "time": duration(run["seconds"]) if run.get("seconds") is not None else None,
            "seed": run.get("seed"),
            "threshold": run.get("threshold"),
        }
        lines = ["## Training", "", f"![learning curve]({CURVE})", ""] if CURVE in self.shown else ["## Training", ""]
        lines += ["| | |", "|---|---|"]
        lines += [f"| {name} | {_safe(value)} |" for name, value in rows.items() if value is not None]
        return "\n".join([*lines, "", "`config.yaml` holds every setting.", ""])

    def origin(self) -> str:
        """Versions, commit and licence."""
        found = self.manifest.provenance
        versions = ", ".join(f"{_safe(name)} {_safe(one)}" for name, one in dict(found.get("versions") or {}).items())
        git = dict(found.get("git") or {})
        commit = f", code at commit {_safe(git['commit'])}{' with changes' if git.get('dirty') else ''}" if git else ""
        made = f"Trained with Ludus on {_safe(found.get('machine'))}: {versions}{commit}."
        return f"## Origin\n\n{made} Licence: {_safe(self.licence)}. `ludus.json` lists the sums of all files.\n"


def _interval(found: dict[str, float]) -> str:
    if found.get("low") is None:
        return ""
    return f" (95 % bootstrap interval of the mean {found['low']:,.2f} to {found['high']:,.2f}, seed {found['seed']})"


def _safe(value: object) -> str:
    """Text that markdown and HTML show as it is: a run may have been pulled from a stranger before."""
    return markdown_text(clean(value, 120))
