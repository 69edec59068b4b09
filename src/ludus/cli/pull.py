"""`ludus pull`: a run from the Hugging Face Hub, as a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ludus.cli.options import Json, RunsDir
from ludus.cli.play import print_at_once, silence
from ludus.errors import DataError
from ludus.files import to_json
from ludus.terminal import quiet

_EVALUATE = "Play the card's episodes again and compare every return."


def pull(
    repository: Annotated[str, Argument(metavar="USER/NAME[@REVISION]", help="A commit, branch or tag after the @.")],
    evaluate: Annotated[bool, Option("--evaluate", help=_EVALUATE)] = False,
    json: Json = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Bring a published run here: to play, evaluate, resume or fine-tune. Every file is checked; no code is run."""
    from ludus.hub.client import Hub
    from ludus.hub.client import repository as checked

    checked(repository)
    Hub()  # says that the extra is missing
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

    print(f"run      {id}")
    print(f"from     {told['repo']}@{told['commit']}")
    print(f"return   {summary(told['evaluation'])}" + (", here the same to the bit" if same else ""))
    print(f"next     ludus play @last{option}\n         ludus resume @last{option}")
