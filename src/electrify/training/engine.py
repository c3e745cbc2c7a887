"""Where a run happens: one process or many, their device and precision. Only this file knows
accelerate.

Start many with `torchrun --nproc-per-node 8 -m electrify pretrain …` or `accelerate launch`. Every
process makes the whole global batch and trains on its own rows; losses are shares of the global
total, so gradients add up over processes to those of one process.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from electrify.errors import UserError
from electrify.models.fast import keep_memory
from electrify.training.precision import Asked, Choice, choose_precision
from electrify.training.sharding import full_tensor

_Result = TypeVar("_Result")
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Engine:
    """The processes of a run, seen from one of them.

    `device` "auto" is CUDA if there is one, else the CPU: Apple's MPS has no float64, in which
    samples are drawn and losses added up. accelerate keeps one state for a Python process, so the
    device of its first engine is that of all; autocast and the scaler of float16 are our own, so
    each engine has its own precision.
    """

    def __init__(self, precision: Asked = "float32", device: str = "auto") -> None:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState
        from accelerate.utils import DistributedType

        if device == "cuda" and not torch.cuda.is_available():
            raise UserError("no CUDA device here", got="--device cuda", fix="--device cpu, or auto")
        # On CPUs ranks find each other only if accelerate is told that there is no other device.
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
            raise _other_state(device, f"it uses {self.accelerator.device.type}")
        kind = self.accelerator.distributed_type
        if kind in (DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM):
            raise UserError(
                "this launcher would deal out the weights itself, and not know what they share",
                got=f"{kind.value}",
                fix="launch with torchrun or plain accelerate; --shard deals out the weights",
            )
        self.device = self.accelerator.device
        if self.device.type == "cpu":
            keep_memory()
        self.rank, self.world = self.accelerator.process_index, self.accelerator.num_processes
        if precision == "float32":
            self.use(Choice("float32", "float32", ""))
        else:
            self.use(self.main_first(lambda: choose_precision(precision, self.device.type)))

    def use(self, choice: Choice) -> None:
        """Compute in a precision that all processes agree on."""
        self.choice = choice
        self.precision = choice.precision
        self.muon_dtype = DTYPES[choice.muon]
        scaled = choice.precision == "fp16"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=scaled)

    @property
    def is_main(self) -> bool:
        """Whether this rank is the one that writes."""
        return bool(self.rank == 0)

    def rows(self, batch_size: int) -> range:
        """The rows of the global batch that are this process's."""
        if batch_size % self.world:
            raise UserError(
                "the batch cannot be dealt out evenly",
                got=f"run.batch_size = {batch_size} over {self.world} processes",
                fix=f"take a multiple of {self.world}",
            )
        return self.share(batch_size)

    def share(self, rows: int) -> range:
        """This process's part of some rows; parts may differ by one."""
        return range(rows * self.rank // self.world, rows * (self.rank + 1) // self.world)

    def prepare(self, model: nn.Module, unused: Sequence[str]) -> nn.Module:
        """The model as it is to be called, so that its gradients are added up over processes."""
        if self.world == 1 or isinstance(model, FSDPModule):
            return model
        return nn.parallel.DistributedDataParallel(
            model,
            device_ids=[self.device.index] if self.device.type == "cuda" else None,
            find_unused_parameters=bool(unused),
            gradient_as_bucket_view=True,
        )

    def autocast(self) -> AbstractContextManager[Any]:
        """Inside, matrices are multiplied in the run's precision."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=DTYPES[self.precision])

    @contextmanager
    def accumulating(self, model: nn.Module, last: bool) -> Iterator[None]:
        """Inside, gradients are only added up over processes for the last micro-batch."""
        if isinstance(model, FSDPModule):
            model.set_requires_gradient_sync(last)
        alone = isinstance(model, nn.parallel.DistributedDataParallel) and not last
        with model.no_sync() if alone else nullcontext():  # type: ignore[operator]
            yield

    def backward(self, loss: Tensor) -> None:
        """Gradients of a loss; torch averages them over processes where a sum is wanted."""
        self.scaler.scale(loss * self.world).backward()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Undo the scaling of float16, before gradients are measured and clipped."""
        if self.scaler.is_enabled():
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer, move: bool) -> None:
        """Move the weights, unless told not to; float16's scale follows either way."""
        if self.scaler.is_enabled():
            if move:
                self.scaler.step(optimizer)
            self.scaler.update()
        elif move:
            optimizer.step()

    def scale_state(self) -> dict[str, Any]:
        """What float16's scale has learned, for a checkpoint."""
        return dict(self.scaler.state_dict())

    def load_scale(self, state: dict[str, Any]) -> None:
        """Go on with a scale."""
        if state and self.scaler.is_enabled():
            self.scaler.load_state_dict(state)

    def gather_full_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Gather sharded tensors on the main rank; every rank has to call it.

        What was gathered goes to the CPU immediately: no device needs to hold all of it.
        """
        found = {}
        for name, tensor in tensors.items():
            gathered = full_tensor(tensor)
            if self.is_main:
                found[name] = gathered if gathered is tensor else gathered.cpu()
        return found

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks."""
        if self.world == 1:
            return tensor
        summed: Tensor = self.accelerator.reduce(tensor.to(self.device), reduction="sum")
        return summed.cpu()

    def all_reduce_sums(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the sums over all ranks, by name."""
        if self.world == 1 or not sums:
            return sums
        names = sorted(sums)
        flat = torch.cat([sums[name].detach().double().flatten() for name in names])
        parts = torch.split(self.all_reduce(flat), [sums[name].numel() for name in names])
        return {n: part.view(sums[n].shape) for n, part in zip(names, parts, strict=True)}

    def any_reason(self, mine: str) -> str:
        """Return why any rank wants to stop; empty if none does."""
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
        """Let the main rank do something; every rank gets its result, or its error."""
        result: Any = None
        if self.is_main:
            try:
                result = work()
            except Exception as error:  # whatever it is, the others must not wait for ever
                if self.world == 1:
                    raise
                result = error
        result = self.broadcast(result)
        if isinstance(result, Exception):
            raise result
        return result

    def on_main(self, work: Callable[[], _Result]) -> _Result | None:
        """Return what the main rank makes, there alone; an error is raised on every rank."""
        made: list[_Result] = []
        self.main_first(lambda: made.append(work()))
        return made[0] if made else None

    def close(self) -> None:
        """Leave the group of processes."""
        if self.world > 1 and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _other_state(device: str, why: str) -> UserError:
    return UserError(
        "this Python process already uses accelerate with other settings",
        got=f"device {device}; {why}",
        fix="restart Python (a notebook: its kernel), or use the same device as before",
    )


@cache
def single_process() -> Engine:
    """Return one process on the CPU, in float32."""
    return Engine(device="cpu")
