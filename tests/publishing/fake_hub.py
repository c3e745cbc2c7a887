"""A Hub on loopback: the endpoints that `huggingface_hub` calls to upload a model."""

import base64
import json
import threading
from collections import Counter
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKENS = {"hf_write": "write", "hf_read": "read"}
LARGE = (".safetensors", ".onnx")


class FakeHub:
    """Repositories with branches; large files by their SHA-256, as the real one keeps them."""

    def __init__(self) -> None:
        self.repos: dict[str, dict] = {}
        self.blobs: dict[str, bytes] = {}
        self.received: Counter[str] = Counter()
        """How often each large file arrived completely, by SHA-256."""
        self.committed: Counter[tuple[str, str]] = Counter()
        """How often each small file arrived, by branch and path."""
        self.commits: list[tuple[str, str]] = []
        self.requests: list[str] = []
        self.accepted_puts: int | None = None
        """Number of large files to accept; further ones stall until the client is gone."""
        self.stalled = threading.Event()
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Bound", (Handler,), {"hub": self})
        )
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def files(self, repo: str, branch: str = "main") -> dict[str, bytes]:
        return self.repos[repo]["branches"][branch]

    def store(self, sha: str, data: bytes) -> bool:
        with self.lock:
            if self.accepted_puts is not None and len(self.blobs) >= self.accepted_puts:
                return False
            assert sha256(data).hexdigest() == sha
            self.received[sha] += 1
            self.blobs[sha] = data
            return True


class Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, content: object, status: int = 200, **headers: str) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(data)

    def content(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, ValueError):  # the client was killed
            self.close_connection = True

    def do_GET(self) -> None:
        self.route("GET")

    def do_POST(self) -> None:
        self.route("POST")

    def do_PUT(self) -> None:
        self.route("PUT")

    def route(self, method: str) -> None:
        path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        self.hub.requests.append(f"{method} /{'/'.join(path)}")
        body = self.content()
        role = TOKENS.get(self.headers.get("Authorization", "").removeprefix("Bearer "))
        if method == "PUT":
            return self.put(path[-1], body)
        if role is None:
            return self.answer({"error": "Invalid token"}, 401)
        if path == ["api", "whoami-v2"]:
            return self.answer({"name": "me", "auth": {"accessToken": {"role": role}}})
        if path == ["api", "validate-yaml"]:
            return self.answer({"errors": [], "warnings": []})
        if path == ["api", "repos", "create"]:
            return self.create(json.loads(body))
        if path[-4:] == ["info", "lfs", "objects", "batch"]:
            return self.batch(json.loads(body))
        repo = "/".join(path[2:4])
        if repo not in self.hub.repos:
            return self.answer({"error": "not found"}, 404, X_Error_Code="RepoNotFound")
        if len(path) == 4:
            private = self.hub.repos[repo]["private"]
            return self.answer({"id": repo, "private": private, "siblings": [], "tags": []})
        action, branch = path[4:6]
        branches = self.hub.repos[repo]["branches"]
        if action == "branch":
            if branch in branches:
                return self.answer({"error": "exists"}, 409)
            branches[branch] = dict(branches["main"])
            return self.answer({})
        if action == "preupload":
            return self.preupload(json.loads(body))
        if action == "tree":
            return self.answer([self.entry(*item) for item in branches[branch].items()])
        assert action == "commit", path
        return self.commit(repo, branch, [json.loads(line) for line in body.splitlines()])

    def create(self, order: dict) -> None:
        repo = f"{order['organization'] or 'me'}/{order['name']}"
        first = {".gitattributes": b"*.onnx filter=lfs\n"}
        private = order.get("visibility") == "private" or bool(order.get("private"))
        self.hub.repos[repo] = {"private": private, "branches": {"main": first}}
        self.answer({"url": f"{self.hub.url}/{repo}"})

    def preupload(self, order: dict) -> None:
        modes = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(LARGE) else "regular",
                "shouldIgnore": False,
            }
            for file in order["files"]
        ]
        self.answer({"files": modes})

    def batch(self, order: dict) -> None:
        objects = []
        for one in order["objects"]:
            known = {"oid": one["oid"], "size": one["size"]}
            if one["oid"] not in self.hub.blobs:
                known["actions"] = {"upload": {"href": f"{self.hub.url}/lfs/{one['oid']}"}}
            objects.append(known)
        self.answer({"transfer": "basic", "objects": objects})

    def put(self, sha: str, data: bytes) -> None:
        if self.hub.store(sha, data):
            return self.answer({})
        self.hub.stalled.set()
        self.rfile.read(1)  # until the client is gone
        self.close_connection = True

    def entry(self, path: str, data: bytes) -> dict:
        git = sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry = {"type": "file", "path": path, "size": len(data), "oid": git}
        if path.endswith(LARGE):
            entry["oid"] = "0" * 40
            entry["lfs"] = {"oid": sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return entry

    def commit(self, repo: str, branch: str, lines: list[dict]) -> None:
        files = dict(self.hub.files(repo, branch))
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.hub.commits.append((branch, value["summary"]))
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
                self.hub.committed[branch, value["path"]] += 1
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
            else:
                assert line["key"] == "deletedFile"
                del files[value["path"]]
        self.hub.repos[repo]["branches"][branch] = files
        self.answer({"commitUrl": f"{self.hub.url}/{repo}/commit/1", "commitOid": "1" * 40})
