"""GLUE from a Hub on this machine: complete, resumed, damaged, offline."""

import hashlib
import io
import json
import threading
import time
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from electrify.cli import main
from electrify.errors import UserError
from electrify.finetuning.glue.data import read_split
from electrify.finetuning.glue.download import download_glue
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.options import GlueData

COMMIT = "c" * 40


def parquet(rows, **columns):
    table = pa.table({**{name: [f"{name} {n}" for n in range(rows)] for name in columns}, "label": [n % 2 for n in range(rows)]})  # fmt: skip
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


FILES = {
    f"{task}/{split}-00000-of-00001.parquet": parquet(rows, **dict.fromkeys(columns))
    for task, columns in (("cola", ["sentence"]), ("rte", ["sentence1", "sentence2"]))
    for split, rows in (("train", 9), ("validation", 4), ("test", 3))
}


class FakeHub:
    """Answers as the Hub does; counts the downloads of each file."""

    def __init__(self):
        self.fetched: list[str] = []
        self.content = dict(FILES)

    def siblings(self):
        for name, content in FILES.items():
            lfs = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 1}  # fmt: skip
            yield {"rfilename": name, "size": len(content), "blobId": "0", "lfs": lfs}

    def handler(hub):
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                path = self.path.partition("?")[0]
                if path.startswith("/api/datasets/nyu-mll/glue"):
                    body = {"id": "nyu-mll/glue", "sha": COMMIT, "siblings": [*hub.siblings()]}
                    return self.answer(json.dumps(body).encode(), "application/json")
                name = path.partition(f"/resolve/{COMMIT}/")[2]
                if name not in hub.content:
                    return self.send_error(404)
                if self.command == "GET":
                    hub.fetched.append(name)
                return self.answer(hub.content[name], "application/octet-stream")

            do_HEAD = do_GET

            def answer(self, body, kind):
                self.send_response(200)
                headers = {"Content-Type": kind, "Content-Length": len(body), "X-Repo-Commit": COMMIT, "ETag": '"0"'}  # fmt: skip
                for name, value in headers.items():
                    self.send_header(name, str(value))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

        return Handler


@contextmanager
def served(monkeypatch):
    hub = FakeHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), hub.handler())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint(monkeypatch, server.server_port)
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def endpoint(monkeypatch, port):
    import huggingface_hub

    there = partial(huggingface_hub.HfApi, endpoint=f"http://127.0.0.1:{port}")
    monkeypatch.setattr(huggingface_hub, "HfApi", there)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)


def test_glue_is_downloaded_checked_and_read(tmp_path, monkeypatch, capsys):
    out = tmp_path / "deep/GLUE"
    with served(monkeypatch) as hub:
        assert main(["data", "glue", "--out", str(out), "--tasks", "cola"]) == 0
        assert f"{out}: 3 files of nyu-mll/glue at {COMMIT}, checked" in capsys.readouterr().out
        cola = [name for name in FILES if name.startswith("cola")]
        assert hub.fetched == cola
        assert [len(read_split(out, TASKS["cola"], s)) for s in ("train", "dev", "test")] == [
            9,
            4,
            3,
        ]
        (out / cola[1]).write_bytes(b"damaged")
        (out / f"rte/.train-00000-of-00001.parquet.{1 << 30}.tmp").parent.mkdir()
        (out / f"rte/.train-00000-of-00001.parquet.{1 << 30}.tmp").write_bytes(b"killed")
        download_glue(GlueData(out=out, tasks="cola,rte"))  # only what is missing or damaged
        assert hub.fetched[3:] == [cola[1], *(name for name in FILES if name.startswith("rte"))]
    found = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}  # fmt: skip
    assert found == FILES


def test_a_damaged_transfer_is_never_kept(tmp_path, monkeypatch):
    with served(monkeypatch) as hub:
        name = "cola/validation-00000-of-00001.parquet"
        hub.content[name] = bytes(len(FILES[name]))
        with pytest.raises(UserError, match="was damaged in transfer"):
            download_glue(GlueData(out=tmp_path / "GLUE", tasks="cola"))
        assert not (tmp_path / "GLUE" / name).exists()
        hub.content[name] = FILES[name]
        download_glue(GlueData(out=tmp_path / "GLUE", tasks="cola"))
        assert hub.fetched.count("cola/train-00000-of-00001.parquet") == 1
        with pytest.raises(UserError, match="lacks files of SST-2") as error:
            download_glue(GlueData(out=tmp_path / "GLUE", tasks="sst2"))
        assert error.value.got == "no sst2/train-*.parquet"


def test_offline_is_an_error_within_seconds(tmp_path, monkeypatch):
    endpoint(monkeypatch, 9)  # nothing listens there
    start = time.monotonic()
    with pytest.raises(UserError, match="cannot be read") as error:
        download_glue(GlueData(out=tmp_path / "GLUE"))
    assert time.monotonic() - start < 10
    assert "check the network" in error.value.fix
    assert not (tmp_path / "GLUE").exists()
