"""`ludus pull`: a run from the Hugging Face Hub or from Weights & Biases, as a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ludus.cli.options import Json, RunsDir
from ludus.cli.play import print_at_once, silence
from ludus.errors import DataError
from ludus.files import to_json
from ludus.terminal import quiet

_WHERE = "A commit, branch or tag after the @; or wandb:ENTITY/PROJECT/RUN[:VERSION]."
_EVALUATE = "Play the card's episodes again and compare every return."


def pull(
    repository: Annotated[str, Argument(metavar="USER/NAME[@REVISION]", help=_WHERE)],
    evaluate: Annotated[bool, Option("--evaluate", help=_EVALUATE)] = False,
    json: Json = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Bring a published or archived run here: to play, evaluate, resume or fine-tune. All is checked; no code runs."""
    from ludus.hub.client import Hub
    from ludus.hub.client import repository as checked
    from ludus.hub.wandb import SCHEME, WandbRuns, reference

    at_wandb = repository.startswith(SCHEME)
    reference(repository) if at_wandb else checked(repository)
    WandbRuns() if at_wandb else Hub()  # says that the extra, the key or the network is missing
    from ludus.hub.pull import published, pull, repeats

    say = silence if json or quiet() else print_at_once
    run = pull(repository, runs_dir=runs_dir, say=say)
    told = published(run)
    same = None
    if evaluate:
        if told["evaluation"] is None:
            raise DataError(run.id, "the card has no evaluation", "play it: ludus evaluate @last")
        say(f"playing {len(told['evaluation']['returns'])} episodes ...")
        same = repeats(run, told["evaluation"]) == told["evaluation"]["returns"]
    if json:
        print(to_json({"run": run.id, "folder": str(run.folder), "from": told, "repeated": same}), end="")
    else:
        from ludus.session.finish import runs_dir_option

        _tell(run.id, told, same, runs_dir_option(run._folder))
    if same is False:
        raise DataError(run.id, "its episodes have other returns here", "compare the versions: ludus show --json")


def _tell(id: str, told: dict[str, Any], same: bool | None, option: str) -> None:
    from ludus.hub.publish import summary
    from ludus.hub.wandb import SCHEME, located

    at_wandb = told["repo"].startswith(SCHEME)
    print(f"run      {id}")
    print(f"from     {located(told['repo'], told['commit']) if at_wandb else '@'.join((told['repo'], told['commit']))}")
    if not at_wandb:  # what is archived was not evaluated for a card
        print(f"return   {summary(told['evaluation'])}" + (", here the same to the bit" if same else ""))
    print(f"next     ludus play @last{option}\n         ludus resume @last{option}")
