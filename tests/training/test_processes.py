"""Several processes over gloo train the same model as a single one."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.training.conftest import RECIPE
from tests.training.nursery import wait_for
from tests.training.test_pretrain import NO_DROPOUT

from electrify.errors import EXIT_GUARD, GuardError, UserError
from electrify.storage.lock import hold
from electrify.training import checkpoint
from electrify.training.replicas import bit_sums, check_replicas
from electrify.training.sharding import check_can_shard

STEPS = 12


def launch(
    processes: int, *arguments: object, log: Path, before: str = ""
) -> subprocess.Popen[str]:
    """Start `electrify pretrain` in several processes with torchrun."""
    program = [sys.executable, "-m", "electrify"]
    if before:
        script = log.with_suffix(".py")
        script.write_text(
            f"import sys\n{before}\nfrom electrify.cli import main\nsys.exit(main(sys.argv[1:]))\n"
        )
        program = [sys.executable, str(script)]
    if processes > 1:
        torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
        torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
        module = [program[1]] if before else ["-m", "electrify"]
        program = [sys.executable, *torchrun, *module]
    with log.open("a") as file:
        return subprocess.Popen(
            [*program, *map(str, arguments)],
            stdout=file,
            stderr=file,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        )


def command(recipe, shards, out: Path) -> tuple[object, ...]:
    few = ("--run.steps", STEPS, "--run.log-every", 1, "--run.save-every", 6, "--micro-batch", 2)
    return ("pretrain", recipe, "--data", shards, "--out", out, *few)


def pretrain(processes: int, recipe, shards, out: Path, *flags: object, before: str = "") -> int:
    log = out.with_suffix(".log")
    process = launch(processes, *command(recipe, shards, out), *flags, log=log, before=before)
    try:
        return process.wait(timeout=120)
    finally:
        process.kill()


def losses(run: Path) -> dict[tuple[str, int], float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {(x["split"], x["step"]): x["generator_loss"] + x["discriminator_loss"] for x in lines}


def same_weights(one: Path, other: Path, tolerance: float) -> None:
    mine, theirs = (
        checkpoint.read_checkpoint(checkpoint.stored(r / "checkpoints")[0]) for r in (one, other)
    )
    assert mine.step == theirs.step == STEPS
    for name, tensor in theirs.model.items():
        torch.testing.assert_close(mine.model[name], tensor, rtol=0, atol=tolerance, msg=name)


@pytest.fixture(scope="module")
def alone(nursery, recipe, shards, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("alone") / "run"
    log = run.with_suffix(".log")
    assert nursery.run(*command(recipe, shards, run), log=log) == 0, log.read_text()
    return run


# Does what torchrun does, without its imports and those of two more processes. Ranks without a
# common process group would be two trainers of one folder, of which the lock refuses one.
TWO_RANKS = """
os.environ.update(WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="localhost", CUDA_VISIBLE_DEVICES="")
second = os.fork()
os.environ["RANK"] = os.environ["LOCAL_RANK"] = "0" if second else "1"
def both(main=electrify.cli.main):
    code = main()
    return (os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]) if second else 0) or code
electrify.cli.main = both
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize(
    ("processes", "launcher"),
    [
        (2, "fork"),
        pytest.param(2, "torchrun", marks=pytest.mark.slow),
        pytest.param(4, "torchrun", marks=pytest.mark.slow),
    ],
)
def test_the_losses_are_those_of_one_process(
    processes, launcher, alone, nursery, recipe, shards, tmp_path
):
    run = tmp_path / "run"
    if launcher == "torchrun":
        code = pretrain(processes, recipe, shards, run)
    else:
        where = {"log": run.with_suffix(".log"), "MASTER_PORT": str(free_port())}
        code = nursery.run(*command(recipe, shards, run), before=TWO_RANKS, **where)
    assert code == 0, run.with_suffix(".log").read_text()
    mine, theirs = losses(run), losses(alone)
    assert mine.keys() == theirs.keys()
    for key, loss in theirs.items():
        assert mine[key] == pytest.approx(loss, rel=1e-6), key
    same_weights(run, alone, 3e-6)


# Flips the lowest bit of one weight of the second rank after the eighth update.
FLIPPED = """
import torch
from electrify.training import training
def step(self, *arguments, step=training.Stepper.apply, done=[], **named):
    step(self, *arguments, **named)
    done.append(1)
    if len(done) == 8 and os.environ["RANK"] == "1":
        next(self.model.parameters()).detach().view(-1).view(torch.int32)[5] ^= 1
training.Stepper.apply = step
"""


def test_ranks_with_different_weights_save_nothing(nursery, recipe, shards, tmp_path):
    run, log = tmp_path / "run", tmp_path / "run.log"
    port, before = str(free_port()), TWO_RANKS + FLIPPED
    code = nursery.run(*command(recipe, shards, run), before=before, log=log, MASTER_PORT=port)
    said = log.read_text()
    assert code == EXIT_GUARD, said
    assert "the weights are no longer the same on all ranks" in said
    assert "rank 1 differs from rank 0 in 1 of" in said
    assert "the last good checkpoint is kept" in said
    assert [found.step for found in checkpoint.stored(run / "checkpoints")] == [6, 0]


@pytest.mark.parametrize(
    ("sums", "which"),
    [
        ([[1, 2], [1, 2], [1, 3]], "rank 2 differs from 2 equal ranks in 1 of 2"),
        ([[0, 0], [1, 2], [1, 2], [1, 2]], "rank 0 differs from 3 equal ranks in 2 of 2"),
        ([[1, 2], [0, 2], [1, 2], [5, 2], [1, 2]], "ranks 1, 3 differ from 3 equal ranks in 1"),
    ],
)
def test_the_rank_with_other_weights_is_named(sums, which):
    engine = SimpleNamespace(world=len(sums), gather=lambda own: torch.tensor(sums))
    with pytest.raises(GuardError, match=which):
        check_replicas(engine, torch.nn.Linear(2, 2))
    engine.gather = lambda own: torch.stack([own] * 4)
    check_replicas(engine, torch.nn.Linear(2, 2))


def test_any_bit_of_any_parameter_counts():
    model = torch.nn.Linear(300, 200)
    before = bit_sums(model)
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.view(-1)[7] *= 1 + 2**-23
    assert (bit_sums(model) != before).all()


DISAGREEING = """
import os
from electrify.training import folder, precision
bf16 = {"0": 2e9, "1": 2e11}[os.environ["RANK"]]
precision.matmul_speed = lambda name, *what: {"float32": 1e11, "bf16": bf16}[name]
"""


@pytest.mark.slow
def test_ranks_that_measure_different_speeds_compute_alike(recipe, shards, tmp_path):
    """Also if the second rank does not see the run folder yet, as on a slow file system."""
    run, flags = tmp_path / "run", ("--run.precision", "auto", "--optimizer.kind", "muon")
    unseen = """
if os.environ["RANK"] == "1":
    folder.RunFolder.started = property(lambda self: False)
"""
    for before in (DISAGREEING + STOPPING.format(4), DISAGREEING + unseen):
        code = pretrain(2, recipe, shards, run, *flags, before=before)
        assert code == 0, run.with_suffix(".log").read_text()
    log = run.with_suffix(".log").read_text()
    assert log.count("precision float32, Muon in float32") == 2
    assert "bf16" not in log


SHARED = {
    "electra": (),
    "words": ("--sharing.embeddings", "words"),
    "gdes": ("--sharing.embeddings", "gdes"),
    "encoder": ("--sharing.encoder", "--generator.width", 1.0),
    "lamb": ("--optimizer.kind", "lamb"),
    "tiny": ("--run.length", 32, "--run.batch-size", 8, "--optimizer.kind", "adamw"),
    "albert": (),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", SHARED)
def test_sharded_weights_train_like_unsharded_ones(what, recipe, shards, tmp_path):
    """Two ranks with half of every weight each; ties, shared layers and optimizer state hold."""
    flags, chosen = SHARED[what], {"tiny": "tiny", "albert": albert(tmp_path)}.get(what, recipe)
    one, two = tmp_path / "one", tmp_path / "two"
    assert pretrain(1, chosen, shards, one, *flags) == 0, one.with_suffix(".log").read_text()
    code = pretrain(2, chosen, shards, two, "--shard", *flags, before=STOPPING.format(5))
    assert code == 0, two.with_suffix(".log").read_text()
    assert checkpoint.stored(two / "checkpoints")[0].step == 5
    assert pretrain(2, chosen, shards, two, "--shard", *flags) == 0
    assert losses(two) == pytest.approx(losses(one), rel=1e-5)
    same_weights(two, one, 2e-5)


def albert(folder: Path) -> Path:
    """Return a recipe with one layer that is called repeatedly."""
    path = folder / "albert.toml"
    path.write_text(RECIPE.replace('"electra"', '"albert"'))
    return path


def test_runs_that_cannot_be_sharded_are_refused_with_a_fix():
    for settings in [
        ("muon", "float32", False, 2),
        ("lamb", "fp16", False, 2),
        ("lamb", "bf16", True, 2),
        ("lamb", "bf16", False, 1),
    ]:
        with pytest.raises(UserError, match="--shard cannot be used"):
            check_can_shard(*settings)


@pytest.mark.slow
def test_without_dropout_the_micro_batch_does_not_matter(recipe, shards, tmp_path):
    found = []
    for number, (processes, micro_batch) in enumerate([(1, 0), (1, 2), (2, 0), (2, 1)]):
        run = tmp_path / f"run{number}"
        flags = ("--micro-batch", micro_batch, *NO_DROPOUT)
        assert pretrain(processes, recipe, shards, run, *flags) == 0
        found.append(losses(run))
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-6)


@pytest.mark.slow
def test_begun_on_two_it_goes_on_on_one_and_ends_on_four(alone, recipe, shards, tmp_path):
    run = tmp_path / "run"
    for processes, stop_at in [(2, 4), (1, 8), (4, STEPS)]:
        code = pretrain(processes, recipe, shards, run, before=STOPPING.format(stop_at))
        assert code == (130 if processes == 1 else 0)
        assert checkpoint.stored(run / "checkpoints")[0].step == stop_at
        assert f"stopped at step {stop_at}" in run.with_suffix(".log").read_text()
    assert ("validation", STEPS) not in losses(run)  # stopped at the end, before the evaluation
    assert pretrain(4, recipe, shards, run) == 0
    mine, theirs = losses(run), losses(alone)
    assert mine.keys() == theirs.keys()
    for key, loss in theirs.items():
        assert mine[key] == pytest.approx(loss, rel=1e-5), key


# Only the last rank is asked to stop; all must agree on the step.
STOPPING = """
import os, signal
from electrify.training.training import Stepper
accumulate = Stepper.accumulate
def stopping(self, step, batch, *requests):
    done = accumulate(self, step, batch, *requests)
    if step + 1 == {} and self.engine.rank == self.engine.world - 1:
        os.kill(os.getpid(), signal.SIGTERM)
    return done
Stepper.accumulate = stopping
"""

POISONED = """
import torch
from electrify.training.training import Stepper
accumulate = Stepper.accumulate
def poisoned(self, step, batch, *requests):
    if step == 5 and self.engine.rank == self.engine.world - 1:
        handle = next(self.model.parameters()).register_hook(lambda grad: grad * float("nan"))
        try:
            return accumulate(self, step, batch, *requests)
        finally:
            handle.remove()
    return accumulate(self, step, batch, *requests)
Stepper.accumulate = poisoned
"""


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_bad_gradient_on_one_process_moves_no_weights_on_any(
    processes, nursery, recipe, shards, tmp_path
):
    run = tmp_path / "run"
    if processes == 1:
        arguments, file = command(recipe, shards, run), run.with_suffix(".log")
        code = nursery.run(*arguments, log=file, before=POISONED)
    else:
        code = pretrain(processes, recipe, shards, run, before=POISONED)
    log = run.with_suffix(".log").read_text()
    assert code == 0, log
    assert "step 5: gradient norm is nan" in log
    last = checkpoint.read_checkpoint(checkpoint.stored(run / "checkpoints")[0])
    assert all(tensor.isfinite().all() for tensor in last.model.values())
    assert last.state["guard"]["bad"] == [5]


@pytest.mark.slow
def test_a_killed_process_ends_the_group_and_the_run_goes_on(alone, recipe, shards, tmp_path):
    run = tmp_path / "run"
    code = pretrain(2, recipe, shards, run, before=DYING)
    assert code not in (0, None)
    assert pretrain(2, recipe, shards, run) == 0
    same_weights(run, alone, 3e-6)


DYING = """
import os, signal
from electrify.training.training import Stepper
accumulate = Stepper.accumulate
def dying(self, step, batch, *requests):
    if step == 8 and self.engine.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return accumulate(self, step, batch, *requests)
Stepper.accumulate = dying
"""


@pytest.fixture(scope="module")
def four(recipe, shards, tmp_path_factory) -> Path:
    """Return a run of four processes that was not stopped."""
    run = tmp_path_factory.mktemp("four") / "run"
    assert pretrain(4, recipe, shards, run, *LONGER) == 0, run.with_suffix(".log").read_text()
    return run


LONGER = ("--run.steps", 150, "--run.log-every", 10, "--run.save-every", 1000)


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(40))
def test_a_signal_saves_one_step_on_all_and_the_run_ends_the_same(
    trial, four, recipe, shards, tmp_path
):
    """Four processes on two cores; the time of the signal is different in each trial."""
    run, log = tmp_path / "run", tmp_path / "log"
    command = ("pretrain", recipe, "--data", shards, "--out", run, "--micro-batch", 2, *LONGER)
    process = launch(4, *command, log=log)
    wait_for(run / "metrics.jsonl")
    time.sleep(0.03 * trial)
    process.send_signal(SIGNALS[trial % len(SIGNALS)])
    begin = time.monotonic()
    process.wait(timeout=60)
    assert time.monotonic() - begin < 30
    newest = checkpoint.newest(run / "checkpoints", print)
    assert newest is not None
    if newest.step < 150:
        assert f"stopped at step {newest.step}" in log.read_text()
    assert pretrain(4, recipe, shards, run, *LONGER) == 0
    # Not bit-identical: in its first step a process group sums gradients in a different order.
    assert losses(run) == pytest.approx(losses(four), rel=1e-5)
    last = [
        checkpoint.read_checkpoint(checkpoint.stored(r / "checkpoints")[0]) for r in (run, four)
    ]
    for name, tensor in last[1].model.items():
        torch.testing.assert_close(last[0].model[name], tensor, rtol=0, atol=1e-4, msg=name)


@pytest.mark.slow
def test_processes_whose_launcher_is_gone_save_and_end(recipe, shards, tmp_path):
    """A scheduler's SIGUSR1 kills torchrun, which does not pass it on."""
    run, log = tmp_path / "run", tmp_path / "log"
    command = ("pretrain", recipe, "--data", shards, "--out", run, "--run.steps", 100_000)
    process = launch(2, *command, log=log)
    wait_for(run / "metrics.jsonl")
    process.send_signal(signal.SIGUSR1)
    process.wait(timeout=30)
    end = time.monotonic() + 60
    while "the launcher has exited" not in log.read_text():
        assert time.monotonic() < end
        time.sleep(0.1)
    with hold_when_free(run / "lock"):  # no process trains any more
        assert checkpoint.newest(run / "checkpoints", print) is not None


def hold_when_free(path: Path):
    for _ in range(300):
        try:
            return hold(path, "testing")
        except UserError:
            time.sleep(0.1)
    raise AssertionError("the lock is still held")


@pytest.mark.slow
def test_held_out_text_is_the_same_for_any_number_of_processes(recipe, shards, tmp_path):
    """A batch of 7 examples that two processes cannot share evenly."""
    found = []
    for processes in (1, 2):
        run = tmp_path / f"run{processes}"
        few = ("--run.eval-every", 6, "--run.eval-batches", 3, *NO_DROPOUT)
        code = pretrain(processes, recipe, shards, run, *few, before=SEVEN_EXAMPLES)
        assert code == 0, run.with_suffix(".log").read_text()
        found.append({key: loss for key, loss in losses(run).items() if key[0] == "validation"})
    assert found[0] == pytest.approx(found[1], rel=1e-6)


SEVEN_EXAMPLES = """
from electrify.training import data
from electrify.tokens.store import Shards
class Few(Shards):
    def __len__(self):
        return 7 if self.split == "validation" else super().__len__()
data.Shards = Few
"""


SIGNALS = (signal.SIGTERM, signal.SIGINT)  # the launcher passes these on


def test_a_batch_size_that_does_not_divide_evenly_is_refused():
    from electrify.training.engine import single_process

    engine = single_process()
    world, engine.world = engine.world, 3
    try:
        with pytest.raises(UserError, match="multiple of the number of processes"):
            engine.rows(8)
    finally:
        engine.world = world


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--shard",)], ids=["replicas", "sharded"])
def test_chunks_of_logits_on_two_ranks_give_the_losses_of_one_process(
    flags, alone, nursery, recipe, shards, tmp_path
):
    run, log = tmp_path / "run", tmp_path / "run.log"
    before = TWO_RANKS + "from electrify.objectives import masked_lm\n"
    before += "masked_lm.MOST_BYTES_OF_LOGITS = 1\n"  # every slot is a chunk
    where = {"log": log, "MASTER_PORT": str(free_port())}
    assert nursery.run(*command(recipe, shards, run), *flags, before=before, **where) == 0, (
        log.read_text()
    )
    mine, theirs = losses(run), losses(alone)
    assert mine.keys() == theirs.keys()
    for key, loss in theirs.items():
        assert mine[key] == pytest.approx(loss, rel=1e-5), key
