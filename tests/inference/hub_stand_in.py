"""A Hugging Face hub in one process, on loopback: the part of its HTTP API that `huggingface_hub` needs to create, fill and read a repository."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "c" * 40


class Hub(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubRequestHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.files: dict[str, dict[str, bytes]] = {}  # repository → its files
        self.commits: dict[str, str] = {}  # repository → its newest commit, if not COMMIT
        self.past: dict[tuple[str, str], dict[str, bytes]] = {}  # (repository, commit) → its files
        self.private: dict[str, bool] = {}
        self.keys: list[str | None] = []  # API keys of write requests

    def publish(self, name: str, folder: Path, commit: str) -> None:
        """Publish the files of a directory as a new commit of a repository."""
        self.files[name] = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
        self.commits[name] = commit
        self.past[name, commit] = self.files[name]

    def files_at(self, name: str, revision: str) -> tuple[str, dict[str, bytes] | None]:
        newest = self.commits.get(name, COMMIT)
        return (
            (newest, self.files.get(name))
            if revision in ("main", newest)
            else (revision, self.past.get((name, revision)))
        )


class HubRequestHandler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length") or -1)
        body = self.rfile.read(size) if size >= 0 else b"".join(self._chunks())
        self.server.keys.append(self.headers.get("authorization"))
        if self.path == "/api/repos/create":
            request = json.loads(body)
            name = f"{request.get('organization') or 'me'}/{request['name']}"
            self.server.files.setdefault(name, {})
            self.server.private[name] = request.get("private") is True or request.get("visibility") == "private"
            return self._json({"url": f"{self.server.url}/{name}", "name": name, "id": name})
        if self.path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        match = re.match(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main", self.path)
        if not match:
            return self._json({"error": f"no {self.path}"}, 404)
        name, what = match.groups()
        if what == "preupload":
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(body)["files"]
            ]
            return self._json({"files": files})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                self.server.files[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        return self._json({"commitUrl": f"{self.server.url}/{name}/commit/{COMMIT}", "commitOid": COMMIT})

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path):
            commit, files = self.server.files_at(match[1], match[2] or "main")
            if files is None:
                return self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
            siblings = [{"rfilename": name} for name in files]
            return self._json({"id": match[1], "modelId": match[1], "sha": commit, "siblings": siblings})
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", path):
            held = self.server.files_at(match[1], match[2])[1] or {}
            return self._json([{"type": "file", "path": n, "size": len(b), "oid": oid(b)} for n, b in held.items()])
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            commit, files = self.server.files_at(match[1], match[2])
            file = (files or {}).get(match[3])
            if file is not None:
                return self._send(
                    file, "application/octet-stream", 200, {"ETag": f'"{oid(file)}"', "X-Repo-Commit": commit}
                )
        return self._json({"error": f"no {path}"}, 404)

    do_HEAD = do_GET

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps(value).encode(), "application/json", status, headers or {})

    def _send(self, body: bytes, kind: str, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, text in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def oid(file: bytes) -> str:
    """Return the git object ID."""
    return hashlib.sha1(b"blob %d\0" % len(file) + file).hexdigest()


@contextmanager
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
