"""Train in child processes for the checklist, so that one that crashes does not end the others."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from electrify.config import to_toml
from electrify.diagnosis.shards import write_random_shards
from electrify.planning.hardware import name_of
from electrify.recipes import schema
from electrify.training.folder import RunFolder
from electrify.training.journal import read_metrics

UPDATES = 12
CHILD_SECONDS = 300.0
LOG_LINES = 15
COMPARED = ("generator_loss", "discriminator_loss")
NO_TF32 = {"NVIDIA_TF32_OVERRIDE": "0"}
"""For CUDA's libraries: float32 matmuls in float32, although electrify allows TF32."""

# ELECTRA as small as is useful, and without dropout, whose masks differ from device to device.
SMALL_ELECTRA = {
    "discriminator.config.hidden_size": 128,
    "discriminator.config.embedding_size": 64,
    "discriminator.config.num_hidden_layers": 2,
    "discriminator.config.intermediate_size": 256,
    "discriminator.config.hidden_dropout_prob": 0.0,
    "discriminator.config.attention_probs_dropout_prob": 0.0,
    "optimizer.kind": "adamw",  # which can be sharded
    "optimizer.lr": 1e-3,
    "optimizer.warmup": 2,
    "run.precision": "float32",
    "run.batch_size": 16,
    "run.steps": UPDATES,
    "run.log_every": 1,
    "run.eval_every": UPDATES,
    "run.eval_batches": 1,
    "run.save_every": UPDATES // 2,
}


class CheckFailed(Exception):
    """A check whose result is wrong; its text says what was found."""


class CheckSkipped(Exception):
    """A check that this machine cannot run; its text says why."""


class BenchSizes(NamedTuple):
    """How much is trained on a device."""

    vocab_size: int
    length: int
    batch_size: int
    """Of ELECTRA-small, whose speed and memory are measured."""
    steps: int


SIZES_BY_DEVICE = {"cuda": BenchSizes(30_522, 128, 128, 200), "cpu": BenchSizes(2_048, 64, 8, 8)}


@dataclass
class Bench:
    """A folder to train in, and a device."""

    work: Path
    device: str

    @property
    def sizes(self) -> BenchSizes:
        """Return how much is trained."""
        return SIZES_BY_DEVICE[self.device]

    @cached_property
    def shards(self) -> Path:
        """Make shards of random tokens."""
        return write_random_shards(self.work / "shards", self.sizes.vocab_size, self.sizes.length)

    @cached_property
    def small(self) -> Path:
        """Write the recipe for comparisons."""
        return self._recipe("small", SMALL_ELECTRA)

    @cached_property
    def real(self) -> Path:
        """Write the recipe whose speed and memory are measured: ELECTRA-small for some steps."""
        precision = "auto" if self.device == "cuda" else "float32"
        changes: dict[str, Any] = {"batch_size": self.sizes.batch_size, "steps": self.sizes.steps}
        changes |= {"log_every": self.sizes.steps // 4, "eval_every": 0, "precision": precision}
        return self._recipe("real", {f"run.{name}": value for name, value in changes.items()})

    def _recipe(self, name: str, changes: dict[str, Any]) -> Path:
        recipe = schema.load("electra-small")
        recipe = schema.override(recipe, {**changes, "run.length": self.sizes.length})
        path = self.work / f"{name}.toml"
        path.write_text(to_toml(recipe), encoding="utf-8")
        return path

    @cached_property
    def reference(self) -> Path:
        """Train on the CPU in float32."""
        return self.pretrain("reference", device="cpu")

    @cached_property
    def exact(self) -> Path:
        """Train on the device in float32, without TF32."""
        return self.pretrain("float32", environment=NO_TF32)

    @cached_property
    def measured(self) -> Path:
        """Train ELECTRA-small on the device and measure its memory."""
        return self.pretrain("measured", recipe=self.real, probe="memory")

    @cached_property
    def planned(self) -> dict[str, Any]:
        """Plan the measured run: for this GPU by name if it is known, or else measured."""
        hardware = "here"
        if self.device == "cuda":
            import torch

            hardware = name_of(torch.cuda.get_device_name()) or hardware
        sizes = ("--vocab-size", self.sizes.vocab_size, "--micro-batch", self.sizes.batch_size)
        printed = self.electrify("plan", self.real, *sizes, "--hardware", hardware, "--json")
        table: dict[str, Any] = json.loads(printed)
        return table

    @property
    def planned_precision(self) -> str:
        """Return the name of the measured run's precision in its plan."""
        used = RunFolder(self.measured).recipe.run.precision
        return "float32" if used == "float32" else "mixed"

    @cached_property
    def model(self) -> Path:
        """Export the run on the device."""
        out = self.work / "model"
        self.electrify("export", self.exact, "--out", out)
        return out

    def pretrain(
        self,
        name: str,
        *flags: object,
        recipe: Path | None = None,
        device: str = "",
        processes: int = 1,
        probe: str = "",
        environment: dict[str, str] | None = None,
    ) -> Path:
        """Train in a child process, or resume, and return the folder of the run."""
        out = self.work / name
        where = ("--data", self.shards, "--out", out, "--device", device or self.device)
        command = ("pretrain", recipe or self.small, *where, *flags)
        printed = self.electrify(
            *command, processes=processes, probe=probe, environment=environment
        )
        out.with_suffix(".log").write_text(printed, encoding="utf-8")
        return out

    def output(self, name: str) -> str:
        """Return what a run has printed."""
        return (self.work / f"{name}.log").read_text(encoding="utf-8")

    def electrify(
        self,
        *arguments: object,
        processes: int = 1,
        probe: str = "",
        environment: dict[str, str] | None = None,
    ) -> str:
        """Run a command in a child process and return its standard output."""
        program = ["-m", "electrify"]
        if processes > 1:
            program = ["-m", "torch.distributed.run", "--standalone"]
            program += ["--nproc-per-node", str(processes), "-m", "electrify"]
        elif probe:
            program = ["-m", "electrify.diagnosis.child", probe, str(self.probed(probe))]
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if self.device == "cpu" else {}
        return run_child(
            [sys.executable, *program, *map(str, arguments)],
            {**os.environ, "HF_HUB_OFFLINE": "1", **hidden, **(environment or {})},
        )

    def probed(self, probe: str) -> Path:
        """Return the file that a probe writes."""
        return self.work / f"{probe}.json"


def run_child(command: list[str], environment: dict[str, str]) -> str:
    """Run a command and return its standard output; its last lines are the error if it fails."""
    child = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that its own children can be ended with it
    )
    try:
        out, errors = child.communicate(timeout=CHILD_SECONDS)
    except BaseException as error:  # also Ctrl-C
        os.killpg(child.pid, signal.SIGKILL)
        _, errors = child.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise CheckFailed(f"no end after {CHILD_SECONDS:.0f} s\n{_tail(errors)}") from error
        raise
    if child.returncode:
        raise CheckFailed(f"{_cause(errors, child.returncode)}\n{_tail(errors)}")
    return out


def _cause(errors: str, code: int) -> str:
    r"""Return the line of standard error that most likely names the cause.

    >>> _cause("Traceback …:\ntorch.OutOfMemoryError: CUDA out of memory\n[W1] note", 1)
    'exit code 1: torch.OutOfMemoryError: CUDA out of memory'
    """
    named = re.findall(r"^(?:\[rank\d\]: )?((?:[\w.]*Error|error)\b.*)$", errors, re.MULTILINE)
    return f"exit code {code}" + (f": {named[0]}" if named else "")


def _tail(errors: str) -> str:
    return "\n".join(errors.splitlines()[-LOG_LINES:])


class LossDifference(NamedTuple):
    """How far the losses of two runs are apart, relative to the losses."""

    first: float
    """At the first update."""
    largest: float


def difference(run: Path, reference: Path) -> LossDifference:
    """Compare the losses of two runs, which must have logged the same steps."""
    ours, theirs = _losses(run), _losses(reference)
    if ours.keys() != theirs.keys():
        raise CheckFailed(f"{len(ours)} losses were logged, the other run has {len(theirs)}")
    apart = {key: _relative(loss, theirs[key]) for key, loss in ours.items()}
    first = max(value for (_, step, _), value in apart.items() if step == 1)
    return LossDifference(first, max(apart.values()))


def _relative(loss: float | None, reference: float | None) -> float:
    """Return the relative difference of two losses; infinite if one was not finite."""
    if loss is None or reference is None:
        return float("inf")
    return abs(loss - reference) / abs(reference)


def _losses(run: Path) -> dict[tuple[str, int, str], float | None]:
    return {
        (record["split"], record["step"], name): record[name]
        for record in read_metrics(run)
        for name in COMPARED
    }
