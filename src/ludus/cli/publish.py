"""`ludus publish`: a run on the Hugging Face Hub, or the same files in a folder."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

from typer import Option

from ludus.cli.options import Checkpointed, Json, Plugin, RunsDir
from ludus.cli.play import print_at_once, silence
from ludus.errors import ConfigError
from ludus.files import to_json
from ludus.terminal import quiet

_REPO = "Default: your account and the name of the run."
_LICENCE = "Under which others may use it, as the Hub names it."
_DRY = "Write the files into a new folder and send nothing; needs no account."


def publish(
    run: Checkpointed = "@last",
    repo: Annotated[str | None, Option(metavar="USER/NAME", help=_REPO)] = None,
    private: Annotated[bool, Option("--private", help="Only you and your team can see it.")] = False,
    dry_run: Annotated[Path | None, Option("--dry-run", metavar="DIR", help=_DRY)] = None,
    episodes: Annotated[int, Option("--episodes", "-n", min=1, help="Fresh episodes for the card.")] = 100,
    licence: Annotated[str, Option("--license", "--licence", metavar="ID", help=_LICENCE)] = "mit",
    json: Json = False,
    plugin: Plugin = None,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Publish the best checkpoint of a run with its config, evaluation, video and card."""
    from ludus.archive.store import RunFolder
    from ludus.hub.client import Hub, repository

    found = RunFolder.load(runs_dir, run)
    hub = Hub()  # says that the extra is missing, also before a dry run: it writes the card
    account = "user" if dry_run else hub.account()
    name, revision = repository(repo or found.id.rpartition("_")[0].rpartition("_")[0] or found.id, account)
    if revision is not None:
        raise ConfigError(f"--repo {repo}", "names a revision", "leave it out: publishing makes a new one")
    if dry_run is None:
        hub.check_target(name, private=private)

    from ludus.archive.run_plugins import load_for  # torch from here on
    from ludus.hub.publish import Wishes, refuse_folder, summary, write_package
    from ludus.session.player import checkpoint_name

    load_for(found, plugin)
    wishes = Wishes(episodes, licence, name, silence if json or quiet() else print_at_once)
    if dry_run is not None:
        refuse_folder(dry_run)
    room = Path(tempfile.mkdtemp(prefix=".ludus-", dir=None if dry_run is None else _parent(dry_run)))
    try:
        step = checkpoint_name(found, None)
        manifest = write_package(found, step, room, wishes)
        commit = None if dry_run else hub.upload(name, room, f"Publish {found.id}/{step}", private=private)
        if dry_run is not None:
            room.rename(dry_run)
    finally:
        shutil.rmtree(room, ignore_errors=True)
    address = None if dry_run else f"{hub.endpoint}/{name}"
    if json:
        facts = {"run": found.id, "checkpoint": step, "repo": name, "commit": commit, "address": address}
        print(
            to_json({**facts, "folder": str(dry_run) if dry_run else None, "evaluation": manifest.evaluation}), end=""
        )
        return
    print(f"run      {found.id}/{step}, its best checkpoint by evaluation, or the last")
    print(f"return   {summary(manifest.evaluation)}")
    print(f"folder   {dry_run}" if dry_run else f"address  {address}\npull     ludus pull {name}@{str(commit)[:12]}")


def _parent(folder: Path) -> Path:
    """Where the files are put together: on the disk of their final place."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder.parent
