"""The Hub's HTTP calls on 127.0.0.1: accounts, repositories, commits, LFS and Xet storage, and faults on demand."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

TOKENS = {"hf_canarycanarycanarycanary12": "alice", "hf_strangerstrangerstranger3": "mallory"}
LARGE = (".safetensors", ".mp4", ".png")


@dataclass
class Blob:
    """The content of a file; what the Hub says about it may be a lie."""

    data: bytes
    large: bool = False
    xet: str = ""
    claimed: int | None = None

    @property
    def size(self) -> int:
        return len(self.data) if self.claimed is None else self.claimed

    @property
    def oid(self) -> str:
        if self.large:
            return hashlib.sha256(self.data).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(self.data) + self.data).hexdigest()


@dataclass
class Repo:
    """A repository with its commits, the newest last."""

    private: bool = False
    commits: list[tuple[str, dict[str, Blob]]] = field(default_factory=list)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, content: dict[str, Blob]) -> str:
        sha = hashlib.sha1(f"{len(self.commits)} {sorted(content)} {time.time_ns()}".encode()).hexdigest()
        self.commits.append((sha, content))
        self.branches["main"] = sha
        return sha

    def at(self, revision: str) -> tuple[str, dict[str, Blob]] | None:
        wanted = self.branches.get(revision, revision)
        return next((found for found in self.commits if found[0].startswith(wanted) and len(wanted) >= 7), None)


@dataclass
class Fault:
    """An answer instead of the real one, a number of times: a status, or a connection that is cut after some bytes."""

    method: str
    path: str
    status: int = 0
    times: int = 1
    cut_after: int = -1
    headers: dict[str, str] = field(default_factory=dict)


class FakeHub(ThreadingHTTPServer):
    """`with FakeHub(folder) as hub:` serves at `hub.address`."""

    daemon_threads = True

    def __init__(self, folder: Path, *, xet: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.xet = folder, xet
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        """Method, path and headers of every request."""
        self.put: list[str] = []
        """Sums of the objects that were really sent."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> FakeHub:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def publish(self, name: str, content: dict[str, bytes | Blob], *, private: bool = False) -> str:
        """Put a repository there, as somebody else would have."""
        blobs = {
            path: data if isinstance(data, Blob) else Blob(data, path.endswith(LARGE)) for path, data in content.items()
        }
        return self.repos.setdefault(name, Repo(private)).commit(blobs)

    def handle_error(self, *_: object) -> None:
        """A client that goes away is no news."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: FakeHub

    def log_message(self, *_: object) -> None:
        """Be silent."""

    def do_GET(self) -> None:
        self.answer("GET")

    def do_HEAD(self) -> None:
        self.answer("HEAD")

    def do_POST(self) -> None:
        self.answer("POST")

    def do_PUT(self) -> None:
        self.answer("PUT")

    def answer(self, method: str) -> None:
        self.body = self._read()
        hub, path = self.server, unquote(urlsplit(self.path).path)
        hub.asked.append((method, self.path, dict(self.headers)))
        self.cut_after = -1
        for fault in hub.faults:
            if fault.times and fault.method == method and re.search(fault.path, path):
                fault.times -= 1
                if fault.status:
                    return self.json({"error": "a fault"}, fault.status, fault.headers)
                self.cut_after = fault.cut_after
                break
        for pattern, call in ROUTES:
            if found := re.fullmatch(pattern, f"{method} {path}"):
                return getattr(self, call)(*found.groups())
        return self.json({"error": f"no such call: {method} {path}"}, 404)

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send(json.dumps(value).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def send(self, data: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.cut_after >= 0:
            self.wfile.write(data[: self.cut_after])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)
            return
        self.wfile.write(data)

    # ---- accounts and repositories -------------------------------------------------------------

    @property
    def user(self) -> str | None:
        return TOKENS.get(self.headers.get("Authorization", "").removeprefix("Bearer "))

    def whoami(self) -> None:
        self.json({"name": self.user, "type": "user"}) if self.user else self.json({"error": "Invalid token"}, 401)

    def create(self) -> None:
        wanted = json.loads(self.body)
        owner = wanted.get("organization") or self.user
        name = f"{owner}/{wanted['name']}"
        if self.user is None or owner != self.user:
            return self.json({"error": "You don't have the rights"}, 401 if self.user is None else 403)
        if name in self.server.repos:
            return self.json({"error": "it exists", "url": f"{self.server.address}/{name}"}, 409)
        repo = self.server.repos[name] = Repo(wanted.get("visibility") == "private")
        repo.commit({".gitattributes": Blob(b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n")})
        return self.json({"url": f"{self.server.address}/{name}", "name": name, "id": name})

    def repo(self, name: str) -> Repo | None:
        found = self.server.repos.get(name)
        return None if found is None or (found.private and self.user != name.partition("/")[0]) else found

    def missing(self) -> None:
        self.json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})

    def info(self, name: str, revision: str | None = None) -> None:
        repo = self.repo(name)
        if repo is None:
            return self.missing()
        found = repo.at(revision or "main")
        if found is None:
            return self.json({"error": "Invalid rev id"}, 404, {"X-Error-Code": "RevisionNotFound"})
        files = [{"rfilename": path} for path in found[1]]
        return self.json({"id": name, "modelId": name, "sha": found[0], "private": repo.private, "siblings": files})

    def tree(self, name: str, revision: str) -> None:
        repo = self.repo(name)
        found = None if repo is None else repo.at(revision)
        if found is None:
            return self.missing()
        return self.json([self.entry(path, blob) for path, blob in found[1].items()])

    def entry(self, path: str, blob: Blob) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "file", "oid": blob.oid[:40], "size": blob.size, "path": path}
        if blob.large:
            entry["lfs"] = {"oid": blob.oid, "size": blob.size, "pointerSize": 130}
        return {**entry, **({"xetHash": blob.xet} if blob.xet else {})}

    def resolve(self, name: str, revision: str, path: str) -> None:
        repo = self.repo(name)
        found = None if repo is None else repo.at(revision)
        if found is None or path not in found[1]:
            return self.missing()
        sha, blob = found[0], found[1][path]
        headers = {"X-Repo-Commit": sha, "ETag": f'"{blob.oid}"', "Accept-Ranges": "bytes"}
        if blob.large:
            headers |= {"X-Linked-Size": str(blob.size), "X-Linked-Etag": f'"{blob.oid}"'}
        if blob.xet:
            route = f"{self.server.address}/api/models/{name}/xet-read-token/{sha}"
            headers |= {"X-Xet-Hash": blob.xet, "X-Xet-Refresh-Route": route}
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked is None:
            return self.send(blob.data, 200, headers)
        start = int(asked[1])
        headers["Content-Range"] = f"bytes {start}-{len(blob.data) - 1}/{len(blob.data)}"
        return self.send(blob.data[start:], 206, headers)

    # ---- uploads -------------------------------------------------------------------------------

    def writable(self, name: str) -> bool:
        return self.user is not None and name.partition("/")[0] == self.user

    def validate(self) -> None:
        self.json({"errors": [], "warnings": []})

    def preupload(self, name: str) -> None:
        repo = self.repo(name)
        if repo is None or not self.writable(name):
            return self.missing() if repo is None else self.json({"error": "Forbidden"}, 403)
        there = repo.commits[-1][1] if repo.commits else {}
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                "shouldIgnore": False,
                **({"oid": there[file["path"]].oid} if file["path"] in there else {}),
            }
            for file in json.loads(self.body)["files"]
        ]
        return self.json({"files": files})

    def batch(self, name: str) -> None:
        objects = []
        for wanted in json.loads(self.body)["objects"]:
            entry = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.server.objects:
                base = f"{self.server.address}/lfs/{wanted['oid']}"
                entry["actions"] = {"upload": {"href": base}, "verify": {"href": f"{base}/verify"}}
            objects.append(entry)
        self.json({"transfer": "basic", "objects": objects})

    def put(self, oid: str) -> None:
        if hashlib.sha256(self.body).hexdigest() != oid:
            return self.json({"error": "other bytes"}, 400)
        self.server.objects[oid] = self.body
        self.server.put.append(oid)
        return self.send(b"")

    def verify(self, oid: str) -> None:
        self.json({}, 200 if oid in self.server.objects else 404)

    def xet_token(self, *_: str) -> None:
        store = f"local://{self.server.folder}"
        info = {"casUrl": store, "accessToken": "xet", "exp": int(time.time()) + 3600}
        headers = {"X-Xet-Cas-Url": store, "X-Xet-Access-Token": "xet", "X-Xet-Token-Expiration": str(info["exp"])}
        self.json(info, 200, headers)

    def commit(self, name: str) -> None:
        repo = self.repo(name)
        if repo is None or not self.writable(name):
            return self.missing() if repo is None else self.json({"error": "Forbidden"}, 403)
        content = dict(repo.commits[-1][1]) if repo.commits else {}
        for line in self.body.splitlines():
            part = json.loads(line)
            value = part["value"]
            if part["key"] == "file":
                content[value["path"]] = Blob(base64.b64decode(value["content"]))
            elif part["key"] == "lfsFile":
                content[value["path"]] = self.stored(value["oid"], value["size"])
            elif part["key"] == "deletedFile":
                content.pop(value["path"], None)
        sha = repo.commit(content)
        return self.json({"success": True, "commitOid": sha, "commitUrl": f"{self.server.address}/{name}/commit/{sha}"})

    def stored(self, oid: str, size: int) -> Blob:
        if oid in self.server.objects:
            return Blob(self.server.objects[oid], large=True)
        return self.server.xet_blobs[oid]  # type: ignore[attr-defined]


NAME = r"([\w.-]+/[\w.-]+?)"
ROUTES = [
    (r"GET /api/whoami-v2", "whoami"),
    (r"POST /api/repos/create", "create"),
    (r"POST /api/validate-yaml", "validate"),
    (rf"GET /api/models/{NAME}", "info"),
    (rf"GET /api/models/{NAME}/revision/(.+)", "info"),
    (rf"GET /api/models/{NAME}/tree/([^/]+)/?", "tree"),
    (rf"(?:GET|HEAD) /{NAME}/resolve/([^/]+)/(.+)", "resolve"),
    (rf"POST /api/models/{NAME}/preupload/main", "preupload"),
    (rf"POST /{NAME}\.git/info/lfs/objects/batch", "batch"),
    (r"PUT /lfs/([0-9a-f]{64})", "put"),
    (r"POST /lfs/([0-9a-f]{64})/verify", "verify"),
    (rf"GET /api/models/{NAME}/xet-(write|read)-token/(.+)", "xet_token"),
    (rf"POST /api/models/{NAME}/commit/main", "commit"),
]
