"""Trace code on fake CUDA tensors: where the host would wait, which copies and kernels there are."""

from tests.gpu import pretend  # noqa: F401, I001  before torch

import traceback
from collections import Counter
from contextlib import contextmanager

import torch
import transformers.masking_utils
import transformers.modeling_utils
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from electrify.training.engine import Engine
from electrify.training.precision import Choice

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)
KERNELS = Counter()
"""Attention kernels that CUDA would have chosen."""


class Trace(TorchDispatchMode):
    """Counts what makes the host wait for the device, and copies to the device.

    Values do not exist: a number read from a tensor is 1, a truth value says that `padded` batches
    have padding and that checks pass.
    """

    def __init__(self, padded: bool) -> None:
        super().__init__()
        self.padded = padded
        self.waits: Counter[str] = Counter()
        self.copies: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        operation = function.overloadpacket
        on_cuda = bool(args) and isinstance(args[0], torch.Tensor) and args[0].is_cuda
        if operation is aten._local_scalar_dense:
            if on_cuda:
                self.waits[f"item at {_place()}"] += 1
            return self._value(args[0])
        if operation in WAITING and on_cuda:
            self.waits[f"{function.name()} at {_place()}"] += 1
            return WAITING[operation](*args, **kwargs)
        if operation is aten.index and on_cuda and any(_is_mask(index) for index in args[1]):
            self.waits[f"index by mask at {_place()}"] += 1
            return torch.empty(args[0].numel(), dtype=args[0].dtype, device=CUDA)
        source, target = _devices(operation, args, kwargs)
        if (source, target) == ("cuda", "cpu"):
            self.waits[f"copy to the host at {_place()}"] += 1
        if (source, target) == ("cpu", "cuda"):
            how = "asynchronous" if kwargs.get("non_blocking") else "blocking"
            self.copies[how] += 1
        return function(*args, **kwargs)

    def _value(self, tensor):
        if tensor.dtype != torch.bool:
            return 1.0 if tensor.is_floating_point() else 1
        if ".any()" in _line():
            return False
        return not (self.padded and "mask_BL.all()" in _line())


def _frames():
    return [
        frame
        for frame in traceback.extract_stack()
        if "/electrify/" in frame.filename
        or "/transformers/" in frame.filename
        or "/torch/amp/" in frame.filename
        or "/torch/optim/" in frame.filename
    ]


def _place() -> str:
    frames = _frames() or traceback.extract_stack()[-6:-5]
    last = frames[-1]
    return f"{'/'.join(last.filename.split('/')[-2:])}:{last.lineno} {last.line[:60]}"


def _line() -> str:
    frames = _frames()
    return frames[-1].line if frames else ""


def _is_mask(index) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _devices(operation, args, kwargs) -> tuple[str, str]:
    if operation is aten._to_copy:
        target = kwargs.get("device") or args[0].device
        return args[0].device.type, torch.device(target).type
    if operation is aten.copy_ and args[0].ndim + args[1].ndim:
        return args[1].device.type, args[0].device.type
    return "", ""


# Operations whose output size or result depends on values, and a stand-in for the result.
WAITING = {
    aten.nonzero: lambda x: torch.empty(x.numel(), x.ndim, dtype=torch.long, device=CUDA),
    aten.bincount: lambda x, weights=None, minlength=0: torch.empty(
        minlength, dtype=torch.long, device=CUDA
    ),
    aten.equal: lambda *tensors: True,
}


def chosen_kernel(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """Attention by the kernel that CUDA would choose: flash only in 16 bits and without a mask."""
    if attn_mask is None and query.dtype in (torch.float16, torch.bfloat16):
        KERNELS["flash"] += 1
        attention = aten._scaled_dot_product_flash_attention
        return attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
    KERNELS["memory-efficient"] += 1
    if attn_mask is not None:
        bias = torch.zeros(attn_mask.shape, dtype=query.dtype, device=query.device)
        attn_mask = bias.expand(*query.shape[:3], key.shape[2])
    attention = aten._scaled_dot_product_efficient_attention
    arguments = (attn_mask, query.requires_grad, dropout_p, is_causal)
    return attention(query, key, value, *arguments, scale=scale)[0]


@contextmanager
def pretended_cuda():
    """Trace on fake CUDA tensors inside the context; CPU tensors from outside may be used."""
    FakeTensorMode.avoid_device_init = property(lambda self: True)
    for module in (transformers.masking_utils, transformers.modeling_utils):
        module.is_tracing = lambda *tensors: False  # as outside of a trace
    nn.functional.scaled_dot_product_attention = chosen_kernel
    torch.cuda.is_available = lambda: True
    torch.cuda.is_bf16_supported = lambda including_emulation=True: True
    torch.cuda.synchronize = lambda *device: None
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.Tensor.pin_memory = lambda tensor, *device: tensor
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


def cuda_engine(precision: str) -> Engine:
    """Return an engine of one process on the pretended device."""
    engine = Engine("float32", "cpu")
    engine.device = CUDA
    engine.use(Choice(precision, "bf16", ""))
    return engine


def moved(model: nn.Module) -> nn.Module:
    """Do what `model.to(CUDA)` does, for fake tensors: shared parameters stay shared."""
    memo = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                if id(parameter) not in memo:
                    empty = torch.empty(parameter.shape, dtype=parameter.dtype, device=CUDA)
                    memo[id(parameter)] = nn.Parameter(empty, parameter.requires_grad)
                module._parameters[name] = memo[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device=CUDA)
    return model
