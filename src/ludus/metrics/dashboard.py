"""A W&B workspace for Ludus' metrics: made once per project, found again by its name, replaced only when asked."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.errors import ConfigError, MissingExtra
from ludus.metrics.panels import PANELS
from ludus.metrics.sinks.wandb import has_key

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

NAME = "Ludus"
_FIND = """query LudusViews($entityName: String, $name: String) {
  project(name: $name, entityName: $entityName) {
    allViews(viewType: "project-view") { edges { node { id name displayName } } }
  }
}"""


@dataclass(frozen=True)
class View:
    """A saved workspace."""

    url: str
    made: bool
    """Whether it is new."""
    replaced: bool = False


def workspace(entity: str, project: str, run: str | None = None) -> Workspace:
    """The workspace; with `run`, only that one is shown."""
    try:
        import wandb_workspaces.workspaces as ws
        from wandb_workspaces.reports.v2.interface import LinePlot, MediaBrowser
    except ImportError:
        raise MissingExtra("wandb dashboard", "wandb") from None
    sections = []
    for i, (name, panels) in enumerate(PANELS.items()):
        plots: list[Any] = [LinePlot(title=title, x="env_steps", y=list(keys)) for title, keys in panels.items()]
        sections.append(ws.Section(name=name, panels=plots, is_open=i < 2))
    sections.append(ws.Section(name="Videos", panels=[MediaBrowser(media_keys=["val/video"])], is_open=True))
    shown = ws.RunsetSettings(query=run) if run else ws.RunsetSettings()
    return ws.Workspace(name=NAME, entity=entity, project=project, sections=sections, runset_settings=shown)


def spec_of(made: Workspace) -> dict[str, Any]:
    """The specification as data, the same every time: the client draws a random id for each panel."""
    found = json.loads(made._to_model().spec.model_dump_json(by_alias=True, exclude_none=True))
    return dict(_without_ids(found))


def save(entity: str | None, project: str, *, overwrite: bool = False, run: str | None = None) -> View:
    """Make the workspace of a project, or find it; an existing one is changed only if `overwrite` or `run` asks."""
    if not has_key():
        raise ConfigError("wandb dashboard", "there is no key for W&B", "run `wandb login`, or set WANDB_API_KEY")
    with _explained(project):
        import wandb
        from wandb_workspaces._graphql import execute_graphql

        api = wandb.Api()
        entity = entity or str(api.default_entity)
        made = workspace(entity, project, run)
        answer = execute_graphql(api, _FIND, {"entityName": entity, "name": project})
        if answer.get("project") is None:
            raise ConfigError(f"{entity}/{project}", "there is no such project", "train one with logging.wandb.enabled")
        nodes = [edge["node"] for edge in answer["project"]["allViews"]["edges"]]
        known = next((node for node in nodes if node["displayName"] == NAME), None)
        if known is not None:
            made._internal_name, made._internal_id = known["name"], known["id"]
        change = known is None or overwrite or run is not None
        if change:
            with redirect_stderr(io.StringIO()):  # the client says what the caller says
                made.save()
        return View(made.url, made=known is None, replaced=known is not None and change)


@contextmanager
def _explained(project: str) -> Iterator[None]:
    """Turn what the client raises into one line."""
    try:
        import requests
        import wandb
    except ImportError:
        raise MissingExtra("wandb dashboard", "wandb") from None
    try:
        yield
    except ImportError:
        raise MissingExtra("wandb dashboard", "wandb") from None
    except (wandb.Error, wandb.errors.CommError, requests.RequestException, ValueError, OSError) as error:
        said = " ".join(str(error).split())[:200]
        raise ConfigError(f"wandb dashboard {project}", said, "see that W&B answers and the key is right") from None


def _without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_ids(item) for key, item in value.items() if key != "__id__"}
    return [_without_ids(item) for item in value] if isinstance(value, list) else value
