"""Start `electrify` commands by the hundred: a warm process forks one child for each.

A command's modules take seconds to import, which is all that a test of a kill would do otherwise.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_WARM = """
import os, sys, json
import electrify.training.pretrain, electrify.cli, transformers.models.electra.modeling_electra
import accelerate, torch
import transformers.models.bert.modeling_bert
print("warm", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if pid == 0:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1); os.dup2(log, 2)
        os.environ.update(order["env"])
        code = 1
        try:
            exec(order["before"])
            code = electrify.cli.main(order["arguments"])
        except SystemExit as exit:
            code = exit.code or 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush(); sys.stderr.flush()
            os._exit(code)
    print(pid, flush=True)
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Nursery:
    """A warm process; one child at a time."""

    def __init__(self) -> None:
        self._child: int | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WARM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
        assert self._line() == "warm"

    def start(self, *arguments: object, log: Path, before: str = "", **env: str) -> int:
        """Fork a child that runs a command; returns its pid."""
        order = {
            "arguments": [str(argument) for argument in arguments],
            "log": str(log),
            "before": before,
            "env": env,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        self._child = int(self._line())
        return self._child

    def wait(self) -> int:
        """The exit code of the child; minus the signal that killed it."""
        code = int(self._line())
        self._child = None
        return code

    def run(self, *arguments: object, log: Path, before: str = "", **env: str) -> int:
        """Run a command to its end."""
        self.start(*arguments, log=log, before=before, **env)
        return self.wait()

    def run_and_kill(self, after: float, number: int, *arguments: object, log: Path) -> int:
        """Run a command and send it a signal after some seconds, if it is still there."""
        pid = self.start(*arguments, log=log)
        time.sleep(after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return self.wait()

    def close(self) -> None:
        """End the child, if there is one, and the warm process."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def wait_for(path: Path, seconds: float = 120) -> None:
    """Until a file has something in it."""
    begin = time.monotonic()
    while not path.exists() or not path.stat().st_size:
        assert time.monotonic() - begin < seconds, f"no {path}"
        time.sleep(0.01)
