"""Classification and regression heads: the official one, or the architecture's own.

The official head (google-research/electra finetune/classification) is dropout and one linear layer
on the [CLS] vector, without a pooler. The official loss is a sum over the batch, so that clipping
to a norm of 1 is nearly always active; most other code uses the mean. Padding rows have weight 0
and count in no loss or metric.
"""

# B batch, L length, H width, C outputs

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from electrify.finetuning.options import LabelKind, Reduction
from electrify.models.inputs import call


class Labelled(NamedTuple):
    """A labeled batch or micro-batch, as tensors."""

    ids_BL: Tensor
    attention_BL: Tensor
    """1 for real tokens, 0 for padding."""
    types_BL: Tensor
    """0 in the first segment, 1 in the second."""
    labels_B: Tensor
    """Class indices, or scores as the model learns them (scaled to 0 … 1 in the official code)."""
    weights_B: Tensor
    """1 for examples, 0 for padding rows."""


class Examples(NamedTuple):
    """The totals of the global batch, known before its loss: the denominator of the mean."""

    examples: float
    tokens: float = 0.0
    """For measuring the speed."""


class OnNetwork(nn.Module):
    """Wraps a transformers network that includes its head."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network, self.config = network, network.config
        self.base_model_prefix = f"network.{network.base_model_prefix}"


class OnBackbone(nn.Module):
    """Wraps a transformers base model, for subclasses to add their own layers.

    The base model should have no pooler, which would never be trained.
    """

    # As in transformers' models, for `layers.layer_scale`. Checkpoints contain this name.
    base_model_prefix = "body"

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.body, self.config = backbone, backbone.config

    def draw(self, seed: int, *layers: nn.Linear) -> None:
        """Initialize layers as in the official code: Glorot uniform weights, zero biases."""
        generator = torch.Generator().manual_seed(seed)
        for layer in layers:
            nn.init.xavier_uniform_(layer.weight, generator=generator)
            nn.init.zeros_(layer.bias)


class Head(nn.Module):
    """Base of both heads: computes the loss of a batch from its logits."""

    kind: LabelKind
    reduction: Reduction

    def forward(self, batch: Labelled, totals: Examples) -> tuple[Tensor, dict[str, Tensor]]:
        """Return this micro-batch's part of the loss, and its sums for the metrics."""
        logits_BC = self.logits(batch)
        if self.kind == "classes":
            losses_B = cross_entropy(logits_BC, batch.labels_B, reduction="none")
        else:
            losses_B = (logits_BC.squeeze(-1) - batch.labels_B).square()
        loss = (losses_B * batch.weights_B).sum()
        if self.reduction == "mean":
            loss = loss / totals.examples
        sums = {"loss": loss.detach(), "examples": batch.weights_B.sum()}
        if self.kind == "classes":
            correct_B = logits_BC.detach().argmax(dim=-1) == batch.labels_B
            sums["correct"] = (correct_B * batch.weights_B).sum()
        return loss, sums

    def logits(self, batch: Labelled) -> Tensor:
        """Return the logits of each row, in float32."""
        raise NotImplementedError


class Classifier(OnBackbone, Head):
    """An encoder with the official head; `outputs` is 1 for a score."""

    def __init__(
        self,
        backbone: Any,
        outputs: int,
        kind: LabelKind,
        reduction: Reduction,
        dropout: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__(backbone)
        self.kind, self.reduction = kind, reduction
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(backbone.config.hidden_size, outputs)
        self.draw(seed, self.classifier)

    def logits(self, batch: Labelled) -> Tensor:
        """Return the logits of each row, in float32."""
        hidden_BLH = call(self.body, batch.ids_BL, batch)[0]
        logits_BC: Tensor = self.classifier(self.dropout(hidden_BLH[:, 0]))
        return logits_BC.float()


class OwnHead(OnNetwork, Head):
    """A sequence-classification network of transformers, with its own head."""

    def __init__(self, network: Any, kind: LabelKind, reduction: Reduction = "mean") -> None:
        super().__init__(network)
        self.kind, self.reduction = kind, reduction

    def logits(self, batch: Labelled) -> Tensor:
        """Return the logits of each row, in float32."""
        logits_BC: Tensor = call(self.network, batch.ids_BL, batch).logits
        return logits_BC.float()
