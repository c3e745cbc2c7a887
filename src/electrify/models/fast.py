"""Enable faster CPU attention, dropout and linear layers in any transformers model.

None of it has weights, so checkpoints and exports stay plain Hugging Face models.
"""

import ctypes
import platform
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from electrify.errors import UserError
from electrify.models import attention
from electrify.models.dropout import FastDropout
from electrify.models.linear import onednn_is_faster, use_onednn

AttentionInterface.register(attention.NAME, attention.attention)


def attention_mask(**arguments: Any) -> Tensor | None:
    """Return transformers' mask; none if there is no padding, for which torch has faster kernels.

    On a GPU, looking for padding would make the host wait, so a given mask is used as it is.
    """
    padding_mask = arguments.get("attention_mask")
    if padding_mask is not None and padding_mask.device.type != "cpu":
        arguments["allow_is_bidirectional_skip"] = False
    mask: Tensor | None = sdpa_mask(**arguments)
    return mask


AttentionMaskInterface.register(attention.NAME, attention_mask)


def enable_fast_path(network: Any) -> None:
    """Make a network faster; only rounding and the random numbers of dropout change."""
    for module in list(network.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, FastDropout(child.p).train(child.training))
            elif type(child) is nn.Linear and onednn_is_faster():
                use_onednn(child)
        if hasattr(module, "warn_if_padding_and_no_attention_mask"):
            module.warn_if_padding_and_no_attention_mask = _know_better
    if network.config._attn_implementation == "sdpa":
        network.set_attn_implementation(attention.NAME)


def use_attention(network: Any, name: str, precision: str) -> None:
    """Make a network use the attention of a recipe, or refuse it with the reason."""
    if name == "auto":
        return
    got = f"run.attn_implementation = {name}"
    if "flash" in name and precision == "float32":
        raise UserError(
            "flash attention computes in 16 bits",
            got=f"{got}, run.precision = float32",
            fix="add --run.precision bf16 or fp16, or use --run.attn-implementation sdpa",
        )
    try:
        network.set_attn_implementation(name)
    except (ImportError, ValueError) as error:
        reason = f"{error}".splitlines()[0]
    else:
        reason = f"transformers uses {network.config._attn_implementation} instead"
    if network.config._attn_implementation != name:
        raise UserError(
            f"{network.config.model_type} cannot use {name} here",
            got=f"{got}; {reason}",
            fix="use --run.attn-implementation auto",
        )
    enable_fast_path(network)


def _know_better(*arguments: Any) -> None:
    """Do not look for [PAD] in batches without a mask, for which the host would wait for a GPU."""


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next step, which needs as much again.

    By default it returns large blocks to the system, which then has to zero every page again.
    """
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h
