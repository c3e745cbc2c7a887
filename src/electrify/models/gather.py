"""Run a masked-LM head on the masked positions only, all at once or some at a time.

Every masked-LM head in transformers works position by position, so a hook on the encoder that
selects rows makes any head compute logits for those only. No vocabulary-sized tensors are computed
for the other positions.
"""

# B batch, L length, H width, M selected rows, C some of them, V vocabulary

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

HEAD_ROWS = "head_rows_M"
"""The attribute of an encoder that holds the rows to select; None selects all."""


@contextmanager
def gather_head_rows(model: nn.Module, rows_M: Tensor) -> Iterator[None]:
    """Run the head only on these rows of the encoder's output, flattened to B × L.

    The hook stays and its rows are an attribute: torch.compile would compile a model with another
    hook anew in every step.
    """
    encoder: nn.Module = model.base_model  # type: ignore[assignment]
    if not hasattr(encoder, HEAD_ROWS):
        encoder.register_forward_hook(_select_rows)
    setattr(encoder, HEAD_ROWS, rows_M)
    try:
        yield
    finally:
        setattr(encoder, HEAD_ROWS, None)


def _select_rows(encoder: nn.Module, arguments: Any, output: Any) -> Any:
    rows_M = getattr(encoder, HEAD_ROWS)
    if rows_M is None:
        return output
    return _with_rows(output, _rows(output, rows_M))


def split_head(
    model: nn.Module, rows_M: Tensor, run: Callable[[], Any]
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Run the encoder once; returns these rows of its output, and the head as a function of rows.

    `run` calls the model. The head is the whole model with an encoder that returns the given rows,
    because what a model does after its encoder is different in every architecture. A model that is
    compiled runs uncompiled here, because it would be compiled anew for every hook.
    """
    encoder: nn.Module = model.base_model  # type: ignore[assignment]
    kept: list[Any] = []

    def keep(module: nn.Module, arguments: Any, output: Any) -> Any:
        hidden_MH = _rows(output, rows_M)
        kept.extend([hidden_MH, _with_rows(output, hidden_MH[:1])])
        return kept[1]

    handle = encoder.register_forward_hook(keep)
    try:
        with _uncompiled(model):
            run()  # the head sees a single row, which costs next to nothing
    finally:
        handle.remove()
    hidden_MH, output = kept

    def head(hidden_CH: Tensor) -> Tensor:
        encoder.forward = lambda *_, **__: _with_rows(output, hidden_CH)
        try:
            with _uncompiled(model):
                logits_CV: Tensor = run().logits.squeeze(0)
            return logits_CV
        finally:
            del encoder.forward

    return hidden_MH, head


def _uncompiled(model: nn.Module) -> AbstractContextManager[Any]:
    if model._compiled_call_impl is None:
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def _rows(output: Any, rows_M: Tensor) -> Tensor:
    hidden_BLH: Tensor = output[0]
    return hidden_BLH.flatten(0, 1).index_select(0, rows_M)


def _with_rows(output: Any, hidden_CH: Tensor) -> Any:
    """Return the output of an encoder with other hidden states."""
    hidden_1CH = hidden_CH.unsqueeze(0)
    if isinstance(output, tuple):
        return (hidden_1CH, *output[1:])
    output["last_hidden_state"] = hidden_1CH
    return output


def flat_rows(positions_BN: Tensor, length: int) -> Tensor:
    """Return positions within the rows of a batch as rows of the batch flattened to B × L."""
    offsets_B1 = torch.arange(len(positions_BN), device=positions_BN.device).unsqueeze(1) * length
    return (positions_BN + offsets_B1).flatten()
