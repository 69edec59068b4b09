"""The calls of W&B's GraphQL server that a dashboard needs, on 127.0.0.1."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VIEWER = {"id": "u1", "entity": "alice", "username": "alice", "name": "Alice", "email": "", "admin": False,
          "flags": "{}", "teams": {"edges": []}, "accountType": "PRO"}  # fmt: skip


class FakeWandb(ThreadingHTTPServer):
    """`with FakeWandb() as server:` answers at `server.address`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.views: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.saved: list[bool] = []
        """For every save, whether it made a new view."""
        self.status, self.project = 200, True

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> FakeWandb:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def answer(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        if "upsertView" in query:
            known = next((view for view in self.views if view["id"] == given.get("id")), None)
            view = known or {"id": f"v{len(self.views)}", "name": given["name"]}
            view |= {"displayName": given["displayName"], "spec": given["spec"]}
            self.views += [] if known else [view]
            self.saved.append(known is None)
            return {"upsertView": {"view": {"id": view["id"], "name": view["name"]}, "inserted": known is None}}
        if "allViews" in query:
            found = {"allViews": {"edges": [{"node": view} for view in self.views]}}
            return {"project": found if self.project else None}
        return {"viewer": VIEWER, "serverInfo": {"cliVersionInfo": {}, "latestLocalVersionInfo": None}}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: FakeWandb

    def log_message(self, *_: object) -> None:
        """Be silent."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data, status = b"{}", self.server.status
        if self.path.startswith("/graphql") and status == 200:
            asked = json.loads(body)
            self.server.asked.append(asked["query"])
            data = json.dumps({"data": self.server.answer(asked["query"], asked.get("variables") or {})}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
