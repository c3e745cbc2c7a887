"""Device, precision and collectives of a run on one or many ranks; the only user of accelerate.

Start several ranks with `torchrun --nproc-per-node 8 -m electrify pretrain …` or `accelerate
launch`. Every rank trains on its own rows of the global batch; each loss is divided by the totals
of the global batch, so gradients sum over ranks to those of a single process.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from electrify.errors import UserError
from electrify.models.fast import keep_freed_memory
from electrify.models.inputs import copied_to
from electrify.training.precision import Asked, Choice, MatmulPrecision, choose_precision
from electrify.training.sharding import full_tensor
from electrify.training.threads import sleep_when_busy

_Result = TypeVar("_Result")
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Requests(NamedTuple):
    """What a rank asks of all ranks after the current step."""

    stop: bool
    save: bool


NO_REQUESTS = Requests(stop=False, save=False)


class Engine:
    """One rank's view of a run: its device, its precision and the other ranks.

    `device` "auto" is CUDA if available, else the CPU: Apple's MPS lacks float64, in which samples
    are drawn and losses summed. accelerate keeps one state per Python process, so all engines share
    the device of the first; autocast and the gradient scaler are torch's, so each engine has its
    own precision.
    """

    def __init__(self, precision: Asked = "float32", device: str = "auto") -> None:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState
        from accelerate.utils import DistributedType

        if device == "cuda" and not torch.cuda.is_available():
            raise UserError(
                "no CUDA device is available", got="--device cuda", fix="use --device cpu or auto"
            )
        # accelerate sets up a process group on CPUs only if it is told to use the CPU.
        on_cpu = device == "cpu" or not torch.cuda.is_available()
        try:
            self.accelerator = Accelerator(mixed_precision="no", cpu=on_cpu)
        except ValueError as error:
            if AcceleratorState._shared_state:
                raise _other_state(device, f"{error}") from error
            raise UserError(
                "accelerate cannot start with these settings",
                got=f"{error}",
                fix="check the launcher's options and the ACCELERATE_… environment variables",
            ) from error
        if device not in ("auto", self.accelerator.device.type):
            raise _other_state(device, f"accelerate uses {self.accelerator.device.type}")
        kind = self.accelerator.distributed_type
        if kind in (DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM):
            raise UserError(
                "launcher-managed sharding would break weight tying",
                got=f"{kind.value}",
                fix="launch with torchrun or plain accelerate, and shard with --shard",
            )
        self.device = self.accelerator.device
        if self.device.type == "cpu":
            keep_freed_memory()
            sleep_when_busy()
        else:
            torch.set_float32_matmul_precision("high")  # TF32: eight times as fast on an A100
        self.rank, self.world = self.accelerator.process_index, self.accelerator.num_processes
        if precision == "float32":
            self.use(Choice("float32", "float32", ""))
        else:
            self.use(self.main_first(lambda: choose_precision(precision, self.device.type)))

    def use(self, choice: Choice) -> None:
        """Set the precision, which must be the same on every rank."""
        self.choice = choice
        self.precision = choice.precision
        self.muon_dtype = DTYPES[choice.muon]
        scaled = choice.precision == "fp16"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=scaled)

    @property
    def is_main(self) -> bool:
        """Return whether this is the main rank, which writes all files."""
        return bool(self.rank == 0)

    def rows(self, batch_size: int) -> range:
        """Return this rank's rows of the global batch, which must divide evenly."""
        if batch_size % self.world:
            raise UserError(
                "the batch size must be a multiple of the number of processes",
                got=f"{batch_size} examples, {self.world} processes",
                fix=f"use multiples of {self.world} for run.batch_size and schedules.batch_size",
            )
        return self.share(batch_size)

    def share(self, rows: int) -> range:
        """Return this rank's share of a number of rows; shares may differ by one row."""
        return range(rows * self.rank // self.world, rows * (self.rank + 1) // self.world)

    def prepare(self, model: nn.Module, unused: Sequence[str]) -> nn.Module:
        """Return the model to call in training, wrapped so that gradients are summed over ranks."""
        if self.world == 1 or isinstance(model, FSDPModule):
            return model
        with warnings.catch_warnings():  # torch 2.13 has a new name for `broadcast_buffers`
            warnings.simplefilter("ignore", FutureWarning)
            return nn.parallel.DistributedDataParallel(
                model,
                device_ids=[self.device.index] if self.device.type == "cuda" else None,
                find_unused_parameters=bool(unused),
                broadcast_buffers=False,  # they are constants, such as position ids
                gradient_as_bucket_view=True,
            )

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context in which matmuls run in the run's precision."""
        return autocast_to(self.precision, self.device)

    @contextmanager
    def accumulating(self, model: nn.Module, last: bool) -> Iterator[None]:
        """Reduce gradients over ranks only for the last micro-batch."""
        if isinstance(model, FSDPModule):
            model.set_requires_gradient_sync(last)
        local = isinstance(model, nn.parallel.DistributedDataParallel) and not last
        with model.no_sync() if local else nullcontext():  # type: ignore[operator]
            yield

    def backward(self, loss: Tensor) -> None:
        """Backpropagate a loss times the world size: torch averages gradients, we need sums."""
        self.scaler.scale(loss * self.world).backward()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Undo the loss scaling of float16, before the gradient norm is computed and clipped."""
        if self.scaler.is_enabled():
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer, move: bool) -> None:
        """Update the weights if `move`; the loss scale of float16 is updated either way."""
        if move:
            # Not `scaler.step`, which waits for the device to look for infinite gradients: the
            # norm, which is already known, is finite.
            optimizer.step()
        if self.scaler.is_enabled():
            self.scaler.update()

    def scale_state(self) -> dict[str, Any]:
        """Return the state of the gradient scaler, for a checkpoint."""
        return dict(self.scaler.state_dict())

    def load_scale(self, state: dict[str, Any]) -> None:
        """Restore the state of the gradient scaler."""
        if state and self.scaler.is_enabled():
            self.scaler.load_state_dict(state)

    def gather_full_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Gather sharded tensors on the main rank; every rank has to call this.

        Each tensor moves to the CPU as soon as it is gathered, so no device holds the full model.
        """
        full = {}
        for name, tensor in tensors.items():
            gathered = full_tensor(tensor)
            if self.is_main:
                full[name] = gathered if gathered is tensor else gathered.cpu()
        return full

    def exchange(
        self, loss: Tensor, norm: Tensor, requests: Requests
    ) -> tuple[float, float, Requests]:
        """Return the loss summed over ranks, the norm, and what any rank requests.

        There is one all-reduce and one copy from the device, for which the host waits.
        """
        if self.world == 1:
            loss_value, norm_value = torch.stack([loss, norm.to(loss)]).cpu().tolist()
            return loss_value, norm_value, requests
        flags = [torch.full_like(loss, float(flag)) for flag in requests]
        summed: Tensor = self.accelerator.reduce(torch.stack([loss, *flags]), reduction="sum")
        norm_value, loss_value, *counts = torch.cat([norm.to(loss).view(1), summed]).cpu().tolist()
        return loss_value, norm_value, Requests(*(count > 0 for count in counts))

    def sum_totals(self, totals: Any) -> Any:
        """Return the totals of all ranks' rows, a named tuple of numbers, without waiting."""
        if self.world == 1:
            return totals
        values = copied_to(self.device, torch.tensor(totals, dtype=torch.float64))
        return type(totals)(*self.accelerator.reduce(values, reduction="sum").unbind())

    def agreed(self, mine: str, requested: bool) -> str:
        """Return the reason to stop before the next step, the same on every rank.

        A single process stops at once; several stop once one of them has requested it.
        """
        if self.world == 1 or (mine and requested):
            return mine
        return "another process was asked to stop" if requested else ""

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks, on the CPU."""
        if self.world == 1:
            return tensor.cpu()
        summed: Tensor = self.accelerator.reduce(tensor.to(self.device), reduction="sum")
        return summed.cpu()

    def all_reduce_sums(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the sums over all ranks by name, in one copy from the device."""
        if not sums or (self.world == 1 and self.device.type == "cpu"):
            return sums
        names = sorted(sums)
        flat = torch.cat([sums[name].detach().double().flatten() for name in names])
        parts = torch.split(self.all_reduce(flat), [sums[name].numel() for name in names])
        return {n: part.view(sums[n].shape) for n, part in zip(names, parts, strict=True)}

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all ranks, stacked, on the CPU."""
        stacked: Tensor = self.accelerator.gather(tensor.unsqueeze(0))
        return stacked.cpu()

    def any_reason(self, mine: str) -> str:
        """Return why this or another rank wants to stop; empty if none does."""
        if float(self.all_reduce(torch.tensor(float(bool(mine))))) == 0:
            return ""
        return mine or "another process was asked to stop"

    def broadcast(self, value: Any) -> Any:
        """Return the main rank's value on every rank."""
        if self.world == 1:
            return value
        from accelerate.utils import broadcast_object_list

        return broadcast_object_list([value])[0]

    def synchronize(self) -> None:
        """Wait for the device to finish its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def barrier(self) -> None:
        """Wait for every rank."""
        self.accelerator.wait_for_everyone()

    def main_first(self, work: Callable[[], Any]) -> Any:
        """Call a function on the main rank; every rank gets its result, or its error."""
        result: Any = None
        if self.is_main:
            try:
                result = work()
            except Exception as error:  # of any kind, so that the other ranks do not hang
                if self.world == 1:
                    raise
                result = error
        result = self.broadcast(result)
        if isinstance(result, Exception):
            raise result
        return result

    def on_main(self, work: Callable[[], _Result]) -> _Result | None:
        """Call a function on the main rank and return its result there, None elsewhere.

        An error is raised on every rank.
        """
        results: list[_Result] = []
        self.main_first(lambda: results.append(work()))
        return results[0] if results else None

    def close(self) -> None:
        """Leave the process group."""
        if self.world > 1 and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def autocast_to(precision: MatmulPrecision, device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which matmuls on a device run in a precision."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[precision])


def _other_state(device: str, why: str) -> UserError:
    return UserError(
        "this Python process already uses accelerate with other settings",
        got=f"device {device}; {why}",
        fix="restart Python (in a notebook: the kernel), or use the same device as before",
    )


@cache
def single_process() -> Engine:
    """Return an engine for a single process on the CPU in float32."""
    return Engine(device="cpu")
