"""A head on an encoder, for classes or for scores: the official one, or the architecture's own.

Officially (google-research/electra finetune/classification) it is dropout and one linear layer on
the [CLS] vector, no pooler. The official loss is a sum over the batch, so that clipping to a norm
of 1 is nearly always active; the mean is what most others take. A filler row has weight 0 and is in
no loss and no count.
"""

# B batch, L length, H width, C outputs

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from electrify.finetuning.options import LabelKind, Reduction
from electrify.models.inputs import call


class Labelled(NamedTuple):
    """One labelled batch, or some rows of one, as tensors."""

    ids_BL: Tensor
    attention_BL: Tensor
    """1 for real tokens, 0 for padding."""
    types_BL: Tensor
    """0 in the first segment, 1 in the second."""
    labels_B: Tensor
    """The number of a class; or a score, scaled as it is to be learned (officially to 0 … 1)."""
    weights_B: Tensor
    """1 for examples, 0 for filler rows."""


class Examples(NamedTuple):
    """What the mean loss of the global batch is divided by, known before any is computed."""

    examples: float
    tokens: float = 0.0
    """For the clock."""


class OnNetwork(nn.Module):
    """What learns is a network of transformers with the head it comes with."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network, self.config = network, network.config
        self.base_model_prefix = f"network.{network.base_model_prefix}"


class OnBackbone(nn.Module):
    """What learns is a base model of transformers under layers of our own.

    The base model is best without a pooler, which would never be trained.
    """

    base_model_prefix = "body"  # so that `layers.layer_scale` finds it, as in transformers' models

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body, self.config = body, body.config

    def draw(self, seed: int, *layers: nn.Linear) -> None:
        """Initialise layers as officially: Glorot uniform, without bias."""
        generator = torch.Generator().manual_seed(seed)
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight, generator=generator)
            nn.init.zeros_(layer.bias)


class Head(nn.Module):
    """What both kinds of heads share: from the logits of each row to this batch's loss."""

    kind: LabelKind
    reduction: Reduction

    def forward(self, batch: Labelled, totals: Examples) -> tuple[Tensor, dict[str, Tensor]]:
        """This batch's share of the loss, and its sums for the metrics."""
        logits_BC = self.logits(batch)
        losses_B = _LOSSES[self.kind](logits_BC, batch.labels_B)
        loss = (losses_B * batch.weights_B).sum()
        if self.reduction == "mean":
            loss = loss / totals.examples
        sums = {"loss": loss.detach(), "examples": batch.weights_B.sum()}
        if self.kind == "classes":
            right_B = logits_BC.detach().argmax(dim=-1) == batch.labels_B
            sums["correct"] = (right_B * batch.weights_B).sum()
        return loss, sums

    def logits(self, batch: Labelled) -> Tensor:
        """What the head says of each row, in float32."""
        raise TypeError("Classifier and OwnHead say how")


class Classifier(OnBackbone, Head):
    """An encoder with the official head of `outputs` numbers; a score has one."""

    def __init__(
        self,
        body: Any,
        outputs: int,
        kind: LabelKind,
        reduction: Reduction,
        dropout: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__(body)
        self.kind, self.reduction = kind, reduction
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(body.config.hidden_size, outputs)
        self.draw(seed, self.classifier)

    def logits(self, batch: Labelled) -> Tensor:
        """What the head says of each row, in float32."""
        hidden_BLH = call(self.body, batch.ids_BL, batch)[0]
        logits_BC: Tensor = self.classifier(self.dropout(hidden_BLH[:, 0]))
        return logits_BC.float()


class OwnHead(OnNetwork, Head):
    """A network of transformers' sequence-classification classes, with the head it comes with."""

    def __init__(self, network: Any, kind: LabelKind, reduction: Reduction = "mean") -> None:
        super().__init__(network)
        self.kind, self.reduction = kind, reduction

    def logits(self, batch: Labelled) -> Tensor:
        """What the head says of each row, in float32."""
        logits_BC: Tensor = call(self.network, batch.ids_BL, batch).logits
        return logits_BC.float()


def _cross_entropy(logits_BC: Tensor, labels_B: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits_BC, labels_B, reduction="none")


def _squared_error(logits_BC: Tensor, labels_B: Tensor) -> Tensor:
    return (logits_BC.squeeze(-1) - labels_B).square()


_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "classes": _cross_entropy,
    "score": _squared_error,
}
