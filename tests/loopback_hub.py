"""A Hugging Face hub on the loopback device: data sets in memory, the endpoints that ``datasets`` and ``huggingface_hub`` ask.

    with LoopbackHub({"owner/name": {"README.md": b"...", "data/train.parquet": b"..."}}) as hub:
        subprocess.run(..., env=os.environ | hub.environment(tmp_path))

Transfers can be broken: ``hub.break_once("data/train.parquet", after=1000)`` closes the connection in the middle of the next
answer that is longer. ``hub.requests`` lists what was asked.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlsplit


class LoopbackHub:
    """See the module."""

    def __init__(self, repositories: Mapping[str, Mapping[str, bytes]]) -> None:
        self.repositories = {name: dict(files) for name, files in repositories.items()}
        self.commits: dict[str, list[str]] = {}
        """Earlier commits that are still known; they show today's files."""
        self.requests: list[str] = []
        """``METHOD path range`` of every request."""
        self.breaks: dict[str, list[int]] = {}
        self.broken: list[str] = []
        """Files whose transfer was broken."""
        self.pushes: dict[str, dict[str, bytes]] = {}
        hub = self

        class Handler(_Handler):
            server_hub = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def endpoint(self) -> str:
        """The value of HF_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def environment(self, folder: Path) -> dict[str, str]:
        """Variables for a process that shall take this for the hub; caches go below ``folder``."""
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(folder / "hf-home"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_OFFLINE": "0",
            "HF_DATASETS_OFFLINE": "0",
        }

    def commit(self, repository: str) -> str:
        """The newest commit of a repository: a hash of its content."""
        digest = hashlib.sha1()
        for name, data in sorted(self.repositories[repository].items()):
            digest.update(name.encode() + b"\0" + hashlib.sha1(data).digest())
        return digest.hexdigest()

    def break_once(self, path: str, after: int) -> None:
        """Close the connection ``after`` bytes into the next answer with ``path`` that is longer than that."""
        self.breaks.setdefault(path, []).append(after)

    def push_once_asked(self, repository: str, files: Mapping[str, bytes]) -> None:
        """Somebody pushes ``files`` right after the newest commit was asked for; the commit before stays known."""
        self.pushes[repository] = dict(files)

    def __enter__(self) -> LoopbackHub:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_hub: LoopbackHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        """Silence."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_POST(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        hub = self.server_hub
        url = urlsplit(self.path)
        path = unquote(url.path)
        hub.requests.append(f"{self.command} {path} {self.headers.get('range', '')}".strip())
        sent = self.rfile.read(int(self.headers.get("content-length") or 0))
        if path.startswith("/api/datasets/"):
            return self._api(path.removeprefix("/api/datasets/"), parse_qs(sent.decode()), body)
        if path.startswith("/datasets/") and "/resolve/" in path:
            name, _, rest = path.removeprefix("/datasets/").partition("/resolve/")
            revision, _, file = rest.partition("/")
            return self._file(name, revision, file, body)
        self._send(404, b'{"error": "Not Found"}', body)

    def _api(self, path: str, form: dict[str, list[str]], body: bool) -> None:
        hub = self.server_hub
        name = next((known for known in hub.repositories if path == known or path.startswith(known + "/")), None)
        if name is None:
            return self._send(404, b'{"error": "Repository not found"}', body, {"X-Error-Code": "RepoNotFound"})
        rest = path[len(name) :].strip("/").split("/")
        revision = rest[1] if len(rest) > 1 else "main"
        known = hub.commits.get(name, [])
        if revision not in ("main", hub.commit(name), *known):
            return self._send(404, b'{"error": "Invalid rev id"}', body, {"X-Error-Code": "RevisionNotFound"})
        if rest[0] in ("", "revision"):
            newest = hub.commit(name)
            if revision == "main" and name in hub.pushes:
                hub.commits.setdefault(name, []).append(newest)
                hub.repositories[name] |= hub.pushes.pop(name)
            return self._json(
                {
                    "_id": "1",
                    "id": name,
                    "sha": revision if revision in known else newest,
                    "private": False,
                    "gated": False,
                    "disabled": False,
                    "downloads": 0,
                    "likes": 0,
                    "tags": [],
                    "siblings": [{"rfilename": file} for file in sorted(hub.repositories[name])],
                },
                body,
            )
        if rest[0] == "tree":
            below = "/".join(rest[2:])
            found = [e for e in self._entries(name) if not below or str(e["path"]).startswith(below + "/")]
            if below and not found:
                return self._send(404, b'{"error": "Entry not found"}', body, {"X-Error-Code": "EntryNotFound"})
            if "recursive=true" not in self.path.lower():
                depth = below.count("/") + 1 if below else 0
                found = [e for e in found if str(e["path"]).count("/") == depth]
            return self._json(found, body)
        if rest[0] == "paths-info":
            wanted = form.get("paths", [])
            return self._json([entry for entry in self._entries(name) if entry["path"] in wanted], body)
        self._send(404, b'{"error": "Not Found"}', body)

    def _entries(self, name: str) -> list[dict[str, object]]:
        files = self.server_hub.repositories[name]
        folders = {"/".join(file.split("/")[:i]) for file in files for i in range(1, file.count("/") + 1)}
        return [
            *({"type": "directory", "oid": "0" * 40, "size": 0, "path": folder} for folder in sorted(folders)),
            *(
                {"type": "file", "oid": hashlib.sha1(data).hexdigest(), "size": len(data), "path": file}
                for file, data in sorted(files.items())
            ),
        ]

    def _file(self, name: str, revision: str, file: str, body: bool) -> None:
        hub = self.server_hub
        data = hub.repositories.get(name, {}).get(file)
        if data is None:
            return self._send(404, b'{"error": "Entry not found"}', body, {"X-Error-Code": "EntryNotFound"})
        headers = {
            "ETag": f'"{hashlib.sha1(data).hexdigest()}"',
            "X-Repo-Commit": revision if revision in hub.commits.get(name, []) else hub.commit(name),
            "Accept-Ranges": "bytes",
        }
        status, part = 200, data
        if given := self.headers.get("range"):
            first, _, last = given.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or len(data) - 1), len(data) - 1)
            if start >= len(data):
                return self._send(416, b"", body, {"Content-Range": f"bytes */{len(data)}"})
            status, part = 206, data[start : end + 1]
            headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
        self._send(status, part, body, headers, file)

    def _json(self, value: object, body: bool) -> None:
        self._send(200, json.dumps(value).encode(), body, {"Content-Type": "application/json"})

    def _send(self, status: int, data: bytes, body: bool, headers: Mapping[str, str] | None = None, file: str = "") -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if not body:
            return
        breaks = self.server_hub.breaks.get(file, [])
        if breaks and len(data) > breaks[0]:
            self.server_hub.broken.append(file)
            self.wfile.write(data[: breaks.pop(0)])
            self.wfile.flush()
            self.close_connection = True
            return
        self.wfile.write(data)
