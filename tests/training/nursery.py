"""Run many `electrify` commands quickly: a process with all imports forks a child for each.

Importing a command's modules takes seconds, which would dominate a test that kills a run.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

_WARM = """
import contextlib, gc, importlib, io, json, os, signal, sys, tempfile
import electrify.cli
for name in sys.argv[1:]:
    importlib.import_module(name)
with contextlib.redirect_stderr(io.StringIO()):  # what reads the command line is imported late
    assert electrify.cli.main(["corpus", "text", "/nowhere", "--out", "/nowhere/out"]) == 2
gc.freeze()
print("warm", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.dup2(os.open(order["stdin"], os.O_RDONLY), 0)
        for number, path in ((1, order["log"]), (2, order["errors"] or order["log"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(order["cwd"])
        os.environ.update(order["env"])
        tempfile.tempdir = None
        sys.argv = ["electrify", *order["arguments"]]
        code = 1
        try:
            exec(order["before"])
            code = electrify.cli.main()
        except SystemExit as exit:
            code = exit.code or 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                if not stream.closed:
                    stream.flush()
            os._exit(code)
    print(pid, flush=True)
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""
TRAINING = (
    "electrify.training.pretrain",
    "transformers.models.electra.modeling_electra",
    "transformers.models.bert.modeling_bert",
    "accelerate",
    "torch",
)
"""Modules that training imports."""
DATA = (
    "electrify.corpora.corpus",
    "electrify.corpora.gutenberg",
    "electrify.corpora.hub",
    "electrify.corpora.openwebtext",
    "electrify.corpora.plaintext",
    "electrify.corpora.wikipedia",
    "electrify.reports.show_run",
    "electrify.tokens.prepare",
    "electrify.tokens.vocabulary",
    "pyarrow.parquet",
)
"""Modules that the commands before training import, without torch."""


class Nursery:
    """A process with imported modules that forks one child at a time."""

    def __init__(self, modules: tuple[str, ...] = TRAINING) -> None:
        self._child: int | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WARM, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # so that `running` sees every line that has been written
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "TOKENIZERS_PARALLELISM": "false",
                "HF_HUB_OFFLINE": "1",
            },
        )
        assert self._line() == "warm"

    def start(
        self,
        *arguments: object,
        log: Path,
        errors: Path | None = None,
        before: str = "",
        cwd: Path | str | None = None,
        stdin: Path | str = os.devnull,
        **env: str,
    ) -> int:
        """Fork a child that runs a command; returns its pid."""
        if self._child is not None:  # left by a test that failed
            self._end()
        order = {
            "arguments": [str(argument) for argument in arguments],
            "log": str(log),
            "errors": str(errors or ""),
            "before": before,
            "cwd": str(cwd or Path.cwd()),
            "stdin": str(stdin),
            "env": env,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._child = int(self._line())
        return self._child

    def wait(self) -> int:
        """Return the exit code of the child, or minus the signal that killed it."""
        code = int(self._line())
        self._child = None
        return code

    def running(self, seconds: float = 0) -> bool:
        """Return whether the child still runs, after waiting at most some seconds for its end."""
        return not select.select([self._process.stdout], [], [], seconds)[0]

    def run(self, *arguments: object, log: Path, before: str = "", **env: str) -> int:
        """Run a command to its end."""
        self.start(*arguments, log=log, before=before, **env)
        return self.wait()

    def run_and_kill(self, after: float, number: int, *arguments: object, log: Path) -> int:
        """Run a command and send it a signal after some seconds, if it still runs."""
        pid = self.start(*arguments, log=log)
        time.sleep(after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return self.wait()

    def completed(
        self,
        *arguments: object,
        cwd: Path | str | None = None,
        timeout: float = 120,
        env: dict[str, str] | None = None,
        before: str = "",
        input: str = "",
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end and capture its output, like `subprocess.run`."""
        with TemporaryDirectory() as folder:
            out, errors, stdin = (Path(folder, name) for name in ("out", "errors", "in"))
            stdin.write_text(input)
            streams = {"log": out, "errors": errors, "stdin": stdin}
            self.start(*arguments, **streams, before=before, cwd=cwd, **(env or {}))
            if self.running(timeout):
                self._end()
                raise subprocess.TimeoutExpired(["electrify", *map(str, arguments)], timeout)
            return subprocess.CompletedProcess(
                ["electrify", *map(str, arguments)],
                self.wait(),
                *(path.read_text(encoding="utf-8") for path in (out, errors)),
            )

    def close(self) -> None:
        """End the child, if there is one, and this process."""
        if self._child is not None:
            self._end()
        self._process.kill()
        self._process.wait()

    def _end(self) -> None:
        assert self._child is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        self.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()


def wait_for(path: Path, seconds: float = 120) -> None:
    """Wait until a file is not empty."""
    begin = time.monotonic()
    while not path.exists() or not path.stat().st_size:
        assert time.monotonic() - begin < seconds, f"no {path}"
        time.sleep(0.01)
