"""The calls of W&B's server that runs and artifacts make, on 127.0.0.1: the real client writes and reads there."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from fake_wandb import FakeWandb, Handler

CALLS = {
    "UpsertBucket": "new_run",
    "CreateRunFiles": "run_files",
    "ArtifactType": "type_of",
    "CreateArtifact": "create",
    "CreateArtifactManifest": "create_manifest",
    "CreateArtifactFiles": "create_files",
    "CommitArtifact": "commit",
    "ArtifactMembershipByName": "by_name",
    "ArtifactByID": "by_id",
    "ServerFeaturesQuery": "features",
    "FetchArtifactManifest": "manifest_of",
    "ArtifactMembershipFiles": "list_files",
}
"""Methods by the name of the operation."""


@dataclass
class Version:
    """One version of an artifact."""

    id: str
    name: str
    type: str
    digest: str
    aliases: list[str]
    state: str = "PENDING"
    index: int | None = None
    manifest: bytes = b""
    files: dict[str, str] = field(default_factory=dict)
    """Digest by name, as the client announced them."""

    @property
    def entries(self) -> dict[str, dict[str, Any]]:
        return dict(json.loads(self.manifest)["contents"])


class FakeArtifacts(FakeWandb):
    """Runs and artifacts of alice; a file is stored once, by its digest, as at W&B."""

    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = ArtifactHandler
        self.versions: list[Version] = []
        self.stored: dict[str, bytes] = {}
        """Bytes by digest."""
        self.put: list[str] = []
        """Names of the files that were sent, in order."""
        self.tokens: dict[str, tuple[str, str]] = {}
        self.bodies: list[bytes] = []
        """What runs and artifacts told besides files."""
        self.refuse_artifacts, self.refuse_files = 0, 0
        """Statuses with which new artifacts, and the files of artifacts, are answered."""

    def handle_error(self, *_: Any) -> None:
        """Say nothing about a client that went away."""

    def known(self, name: str) -> list[Version]:
        return [one for one in self.versions if one.name == name and one.state == "COMMITTED"]

    def find(self, reference: str) -> Version | None:
        name, _, alias = reference.partition(":")
        found = [one for one in self.known(name) if alias == f"v{one.index}" or alias in one.aliases]
        return found[-1] if found else None

    def offer(self, name: str, files: dict[str, bytes], **entries: dict[str, Any]) -> None:
        """An artifact as a stranger can make it: entries of its manifest may say anything."""
        one = Version(f"id{len(self.versions)}", name, "ludus-run", "d", ["latest"], "COMMITTED", len(self.known(name)))
        contents: dict[str, Any] = {}
        for path, data in files.items():
            self.stored[digest_of(data)] = data
            contents[path] = {"digest": digest_of(data), "size": len(data), "birthArtifactID": one.id}
        for path, entry in entries.items():
            contents[path] = {**contents.get(path, {}), **entry}
        form = {"version": 1, "storagePolicy": "wandb-storage-policy-v1"}
        one.manifest = json.dumps(
            {**form, "storagePolicyConfig": {"storageLayout": "V2"}, "contents": contents}
        ).encode()
        self.versions.append(one)

    # ---- GraphQL -------------------------------------------------------------------------------------------------

    def answer(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        found = re.search(r"(?:query|mutation)\s+(\w+)", query)
        call = CALLS.get(found[1]) if found else None
        return getattr(self, call)(given.get("input") or given) if call else super().answer(query, given)

    def new_run(self, given: dict[str, Any]) -> dict[str, Any]:
        project = {"id": "p1", "name": given["project"], "entity": {"id": "e1", "name": given["entity"] or "alice"}}
        bucket = {"id": "b1", "name": given["name"], "displayName": given["displayName"], "description": None,
                  "config": "{}", "sweepName": None, "historyLineCount": 0, "project": project}  # fmt: skip
        return {"upsertBucket": {"bucket": bucket, "inserted": True}}

    def run_files(self, given: dict[str, Any]) -> dict[str, Any]:
        files = [{"name": name, "uploadUrl": f"{self.address}/runfiles/{name}"} for name in given["files"]]
        return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}

    def type_of(self, given: dict[str, Any]) -> dict[str, Any]:
        one = self.find(given["name"])
        return {"project": {"artifact": {"artifactType": {"name": one.type}} if one else None}}

    def create(self, given: dict[str, Any]) -> dict[str, Any]:
        name = given.get("artifactCollectionName") or given["artifactCollectionNames"][0]
        newest = (self.known(name) or [None])[-1]
        if newest is not None and newest.digest == given["digest"]:
            one = newest
        else:
            aliases = [alias["alias"] for alias in given.get("aliases") or ()]
            one = Version(f"id{len(self.versions)}", name, given["artifactTypeName"], given["digest"], aliases)
            self.versions.append(one)
        latest = newest and {"id": newest.id, "versionIndex": newest.index}
        artifact = {"id": one.id, "state": one.state, "artifactSequence": {"id": "s1", "latestArtifact": latest}}
        return {"createArtifact": {"artifact": artifact}}

    def create_manifest(self, given: dict[str, Any]) -> dict[str, Any]:
        url = f"{self.address}/manifests/{given['artifactID']}" if given.get("includeUpload", True) else None
        manifest = {"id": f"m{given['artifactID']}", "file": {"id": "f", "name": "wandb_manifest.json",
                    "displayName": "wandb_manifest.json", "uploadUrl": url, "uploadHeaders": []}}  # fmt: skip
        return {"createArtifactManifest": {"artifactManifest": manifest}}

    def create_files(self, given: dict[str, Any]) -> dict[str, Any]:
        edges = []
        for file in given["artifactFiles"]:
            one = next(one for one in self.versions if one.id == file["artifactID"])
            one.files[file["name"]] = file["md5"]
            token = hashlib.sha256(f"{one.id} {file['name']}".encode()).hexdigest()
            self.tokens[token] = file["name"], file["md5"]
            there = file["md5"] in self.stored
            node = {"id": token, "name": file["name"], "displayName": file["name"], "uploadHeaders": [],
                    "uploadUrl": None if there else f"{self.address}/blobs/{token}", "storagePath": token,
                    "uploadMultipartUrls": None, "artifact": {"id": one.id}}  # fmt: skip
            edges.append({"node": node})
        return {"createArtifactFiles": {"files": {"edges": edges}}}

    def commit(self, given: dict[str, Any]) -> dict[str, Any]:
        one = next(one for one in self.versions if one.id == given["artifactID"])
        earlier = self.known(one.name)
        for other in earlier:
            other.aliases = [alias for alias in other.aliases if alias not in one.aliases]
        one.state, one.index = "COMMITTED", len(earlier)
        return {"commitArtifact": {"artifact": {"id": one.id, "digest": one.digest}}}

    def by_name(self, given: dict[str, Any]) -> dict[str, Any]:
        if given["entity"] != "alice" or not self.project:
            return {"project": None}
        one = self.find(given["name"])
        membership = one and {"artifact": self._fields(one), "artifactCollection": self._collection(one, "Sequence"),
                              "versionIndex": one.index, "id": f"x{one.id}", "createdAt": "2026-01-01T00:00:00Z",
                              "aliases": [{"__typename": "ArtifactAlias", "id": "a", "alias": alias}
                                          for alias in one.aliases],
                              "__typename": "ArtifactCollectionMembership"}  # fmt: skip
        return {"project": {"artifactCollectionMembership": membership}}

    def by_id(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"artifact": self._fields(next(one for one in self.versions if one.id == given["id"]))}

    def list_files(self, given: dict[str, Any]) -> dict[str, Any]:
        one = self.find(f"{given['collection']}:{given['alias']}")
        assert one is not None
        edges = [{"node": self.file(path, entry)} for path, entry in one.entries.items()]
        files = {"pageInfo": {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}, "edges": edges}
        membership = {"__typename": "ArtifactCollectionMembership", "files": files}
        collection = {"__typename": "ArtifactSequence", "artifactMembership": membership}
        return {"project": {"artifactCollection": collection}}

    def file(self, path: str, entry: dict[str, Any]) -> dict[str, Any]:
        """A file, or what W&B says of a reference: both addresses are where it refers to."""
        stored = self.stored.get(entry["digest"], b"")
        hexed = base64.b64decode(entry["digest"]).hex()
        url = entry.get("ref") or f"{self.address}/files/{hexed}"
        return {"__typename": "File", "id": "f1", "name": path, "url": url, "storagePath": None, "mimetype": None,
                "sizeBytes": entry.get("size", len(stored)), "updatedAt": None, "digest": None, "md5": None,
                "directUrl": entry.get("ref") or f"{self.address}/blobs/{hexed}"}  # fmt: skip

    def features(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"serverInfo": {"features": []}}

    def manifest_of(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"artifact": {"currentManifest": {"file": {"directUrl": f"{self.address}/manifests/{given['id']}"}}}}

    def _collection(self, one: Version, kind: str) -> dict[str, Any]:
        project = {"id": "p1", "internalId": "1", "name": "ludus", "entity": {"name": "alice"}}
        return {"__typename": f"Artifact{kind}", "name": one.name, "project": project}

    def _fields(self, one: Version) -> dict[str, Any]:
        return {"__typename": "Artifact", "id": one.id, "artifactSequence": self._collection(one, "Sequence"),
                "versionIndex": one.index, "artifactType": {"name": one.type}, "description": None, "metadata": "{}",
                "ttlDurationSeconds": -2, "ttlIsInherited": False, "tags": [], "historyStep": None, "state": one.state,
                "size": 1, "digest": one.digest, "commitHash": "c", "fileCount": 1, "aliases": [],
                "createdAt": "2026-01-01T00:00:00Z", "updatedAt": None}  # fmt: skip


class ArtifactHandler(Handler, BaseHTTPRequestHandler):
    """Files, and bodies that the client compresses."""

    server: FakeArtifacts

    def do_POST(self) -> None:
        server = self.server
        body = self.body()
        server.bodies.append(body)
        if not self.path.startswith("/graphql"):
            return self.answer(b'{"exitcode": null, "limits": {}}')
        asked = json.loads(body)
        query = asked["query"]
        server.asked.append(query)
        status = server.refuse_artifacts if "mutation CreateArtifact" in query else 0
        if status or server.status != 200:
            return self.answer(b'{"errors": [{"message": "refused"}]}', status or server.status)
        return self.answer(json.dumps({"data": server.answer(query, asked.get("variables") or {})}).encode())

    def do_PUT(self) -> None:
        server, data = self.server, self.body()
        kind, _, name = self.path.removeprefix("/").partition("/")
        if kind == "manifests":
            next(one for one in server.versions if one.id == name).manifest = data
        if kind == "blobs":
            if server.refuse_files:
                return self.answer(b"", server.refuse_files)
            path, digest = server.tokens[name]
            if digest_of(data) != digest:
                return self.answer(b"other bytes", 400)
            server.stored[digest] = data
            server.put.append(path)
        return self.answer(b"")

    def do_GET(self) -> None:
        server, parts = self.server, self.path.removeprefix("/").split("/")
        if parts[0] == "manifests":
            return self.answer(next(one for one in server.versions if one.id == parts[1]).manifest)
        if server.refuse_files:
            return self.answer(b"", server.refuse_files)
        data = server.stored.get(base64.b64encode(bytes.fromhex(parts[1])).decode())
        return self.answer(data or b"", 404 if data is None else 200)

    def body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def answer(self, data: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status == 503:
            self.send_header("Retry-After", "86400")
        self.end_headers()
        self.wfile.write(data)


def digest_of(data: bytes) -> str:
    """The digest by which W&B knows a file."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
