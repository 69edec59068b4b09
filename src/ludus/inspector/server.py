"""The web application: what a page can ask, each in one function.

Reading order: application (routes) -> the handlers in their order. Errors of Ludus become one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ludus import __version__
from ludus.errors import ConfigError, DataError, LudusError
from ludus.inspector import events
from ludus.inspector.bands import bands
from ludus.inspector.curves import AXES
from ludus.inspector.guard import Guard
from ludus.inspector.jobs import MODES, Workshop
from ludus.inspector.runs import Runs
from ludus.inspector.settings import alerts, settings
from ludus.inspector.strict import strict_json
from ludus.metrics.names import EVAL_RETURN, RETURN

STATIC = Path(__file__).parent / "static"
MOST_LISTED, MOST_SPARKS, MOST_POINTS, MOST_BODY = 2_000, 200, 4_000, 1 << 16
MOST_STEPS = 100_000
_REPORT = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
)
"""A report is a file that anybody may have written: it may draw, but it has no origin and reaches nothing."""


class Inspector:
    """The handlers, and what they share."""

    def __init__(self, root: Path, plugins: Sequence[str] = (), start: str = "") -> None:
        self.runs, self.shop, self.start = Runs(root), Workshop(root.resolve(), plugins), start
        self.over = False
        """The server is about to end: what streams ends, too."""

    def about(self, _: Request) -> Response:
        """What the page shows in its frame."""
        return reply({"version": __version__, "runs": str(self.runs.root), "start": self.start})

    def listed(self, request: Request) -> Response:
        """Runs, filtered and sorted as in `ludus list`."""
        try:
            records, count = self.runs.select(
                request.query_params.getlist("filter"), request.query_params.get("sort", "")
            )
        except ConfigError as error:  # a condition that is half typed is no failure
            return reply({"runs": [], "found": 0, "count": 0, "unread": 0, "error": error.line()})
        shown = [self.runs.facts(record) for record in records[:MOST_LISTED]]
        return reply({"runs": shown, "found": len(records), "count": count, "unread": self.runs.index.unread})

    def sparklines(self, request: Request) -> Response:
        """The return of some runs in few points."""
        found = {}
        for id in request.query_params.getlist("run")[:MOST_SPARKS]:
            self.runs.get(id)
            curves = (self.runs.curves.curve(id, name, "env_steps", 40) for name in (EVAL_RETURN, RETURN))
            found[id] = next((curve["y"] for curve in curves if len(curve["y"]) > 1), [])
        return reply(found)

    def run(self, request: Request) -> Response:
        """One run."""
        return reply(self.runs.whole(self.runs.get(request.path_params["run"])))

    def config(self, request: Request) -> Response:
        """Its resolved config with origins."""
        return reply(settings(self.runs.get(request.path_params["run"])))

    def alerts(self, request: Request) -> Response:
        """Its alerts."""
        return reply(alerts(self.runs.get(request.path_params["run"])))

    def report(self, request: Request) -> Response:
        """Its report page, which can do nothing but draw."""
        path = self.runs.file(self.runs.get(request.path_params["run"]), "report.html")
        return FileResponse(path, media_type="text/html", headers={"Content-Security-Policy": _REPORT})

    def video(self, request: Request) -> Response:
        """One of its videos."""
        path = self.runs.file(self.runs.get(request.path_params["run"]), "videos", request.path_params["name"])
        kind = {".mp4": "video/mp4", ".webm": "video/webm"}.get(path.suffix)
        if kind is None:
            raise DataError(path.name, "is no video", "go back to the run")
        return FileResponse(path, media_type=kind)

    def curve(self, request: Request) -> Response:
        """One metric of one run."""
        query = request.query_params
        record, points = self.runs.get(query.get("run", "")), whole(query.get("points"), 800, MOST_POINTS)
        return reply(self.runs.curves.curve(record.id, query.get("metric", ""), axis_of(request), points))

    def band(self, request: Request) -> Response:
        """One metric of several runs, their seeds together."""
        records = [self.runs.get(id) for id in request.query_params.getlist("run")[:MOST_SPARKS]]
        return reply(bands(records, self.runs.curves, request.query_params.get("metric", ""), axis_of(request)))

    def events(self, request: Request) -> Response:
        """Changes as they happen."""
        watched = [self.runs.get(id).id for id in request.query_params.getlist("run")[:MOST_SPARKS]]
        stream = events.stream(self.runs.root, watched, lambda: self.over)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def episode(self, request: Request) -> Response:
        """Order an episode."""
        body = await order_of(request)
        record = self.runs.get(str(body.get("run", "")))
        name, stamp = self.runs.checkpoint(record, str(body.get("checkpoint") or ""))
        mode = body.get("mode", MODES[0])
        if mode not in MODES:
            raise ConfigError("mode", f"'{mode}' is unknown", f"use {', '.join(MODES)}")
        wish = {"run": record.id, "checkpoint": name, "mode": mode}
        wish |= {
            "seed": whole(body.get("seed"), 0, 2**31 - 1, least=0),
            "steps": whole(body.get("steps"), 1000, MOST_STEPS),
        }
        return reply(self.shop.episode(wish, stamp).facts() | {"wish": wish})

    async def look(self, request: Request) -> Response:
        """Order a look inside, or what a world model imagines, at one step of a recorded episode."""
        body = await order_of(request)
        job, what = self.shop.get(str(body.get("episode", ""))), body.get("what")
        if job is None or job.state != "ready" or what not in ("inside", "dream"):
            raise DataError("episode", "is not recorded any more", "play it again")
        return reply(self.shop.look(what, job, whole(body.get("t"), 0, MOST_STEPS, least=0)).facts())

    def job(self, request: Request) -> Response:
        """How far an order is."""
        job = self.shop.get(request.path_params["job"])
        if job is None:
            raise DataError("job", "is unknown", "order it again")
        return reply(job.facts())

    def result(self, request: Request) -> Response:
        """A file of a finished order; parts of it by Range."""
        job = self.shop.get(request.path_params["job"])
        path = None if job is None else self.shop.file(job, request.path_params["name"])
        if path is None:
            raise DataError("result", "is not there", "order it again")
        kind = "application/json" if path.suffix == ".json" else "application/octet-stream"
        return FileResponse(path, media_type=kind)


def application(
    root: Path, *, host: str = "127.0.0.1", token: str | None = None, plugins: Sequence[str] = (), start: str = ""
) -> Starlette:
    """The whole application over a folder of runs."""
    here = Inspector(root, plugins, start)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        here.shop.close()

    routes = [
        Route("/", lambda _: FileResponse(STATIC / "index.html")),
        Route("/api/about", here.about),
        Route("/api/runs", here.listed),
        Route("/api/sparklines", here.sparklines),
        Route("/api/runs/{run}", here.run),
        Route("/api/runs/{run}/config", here.config),
        Route("/api/runs/{run}/alerts", here.alerts),
        Route("/api/runs/{run}/report", here.report),
        Route("/api/runs/{run}/videos/{name}", here.video),
        Route("/api/curve", here.curve),
        Route("/api/band", here.band),
        Route("/api/events", here.events),
        Route("/api/episodes", here.episode, methods=["POST"]),
        Route("/api/looks", here.look, methods=["POST"]),
        Route("/api/jobs/{job}", here.job),
        Route("/api/jobs/{job}/{name}", here.result),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, host=host, token=token)],
        exception_handlers={LudusError: refused, OSError: unreadable},
        lifespan=lifespan,
    )
    app.state.inspector = here
    return app


def server_of(app: Starlette, listener: socket.socket) -> uvicorn.Server:
    """A server on an open socket; `run(sockets=[listener])` serves until it is told to exit."""

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.state.inspector.over = True
            await super().shutdown(sockets)

    listener.listen()
    return Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=5))


def reply(value: object, status: int = 200) -> Response:
    """JSON without NaN."""
    return Response(strict_json(value), status, media_type="application/json")


def refused(_: Request, error: Exception) -> Response:
    """An error of Ludus as one line."""
    return reply({"error": error.line() if isinstance(error, LudusError) else str(error)}, 400)


def unreadable(_: Request, error: Exception) -> Response:
    """A file that went away while it was read."""
    return reply({"error": f"a file of the run cannot be read: {getattr(error, 'strerror', '')}"}, 400)


async def order_of(request: Request) -> dict[str, Any]:
    """The JSON object that was sent; a large one is refused while it arrives."""

    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MOST_BODY:
            raise ConfigError("order", "is too long", "send less")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConfigError("order", "is no JSON object", "send one")
    return found


def axis_of(request: Request) -> str:
    """The axis that a curve is drawn over."""
    axis = request.query_params.get("axis", AXES[0])
    if axis not in AXES:
        raise ConfigError("axis", f"'{axis[:40]}' is unknown", f"use {', '.join(AXES)}")
    return axis


def whole(value: object, default: int, most: int, *, least: int = 1) -> int:
    """A whole number between two bounds."""
    try:
        found = default if value in (None, "") else int(str(value))
    except ValueError:
        raise ConfigError("number", f"'{str(value)[:40]}' is no whole number", "give one") from None
    if not least <= found <= most:
        raise ConfigError("number", f"{str(found)[:40]} is not between {least} and {most}", "give another")
    return found
