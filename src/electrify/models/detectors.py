"""Discriminators and generators that are opened to be asked, with all their weights."""

from typing import Any

from transformers import AutoModelForMaskedLM, AutoModelForTokenClassification
from transformers.models.electra import ElectraForPreTraining

from electrify.errors import UserError
from electrify.models.pair import REPLACED_LABELS
from electrify.models.pretrained import open_model


def open_discriminator(source: str, config: Any) -> tuple[Any, list[str]]:
    """Open a discriminator with its head; returns what is doubtful about it, too."""
    kind, notes = _kind_of(source, config)
    return _complete(kind, source), notes


def open_masked_lm(source: str) -> Any:
    """Open a masked language model with its head."""
    return _complete(AutoModelForMaskedLM, source)


def _kind_of(source: str, config: Any) -> tuple[Any, list[str]]:
    """The class that a discriminator's weights were saved with, and what is doubtful about it."""
    saved = list(config.architectures or [])
    labels = config.id2label
    if "ElectraForPreTraining" in saved:
        return ElectraForPreTraining, []
    if any(name.endswith("ForTokenClassification") for name in saved) and len(labels) == len(
        REPLACED_LABELS
    ):
        return AutoModelForTokenClassification, (
            []
            if labels == REPLACED_LABELS
            else [f'takes its second label, "{labels[1]}", for "replaced"']
        )
    raise UserError(
        f"{source} does not tell replaced tokens from original ones",
        got=", ".join(saved) + f" with {len(labels)} labels" if saved else "no architecture named",
        fix="give an `electrify export`, a run, an ElectraForPreTraining, "
        "or a token classifier with two labels",
    )


def _complete(kind: Any, source: str) -> Any:
    """A network with all its weights: one without its head would answer at random."""
    network, loaded = open_model(kind, source)
    if missing := sorted(loaded["missing_keys"]):
        raise UserError(
            f"{source} lacks weights",
            got=f"no {missing[0]}" + (f" and {len(missing) - 1} more" if missing[1:] else ""),
            fix="give the model with the head it was pre-trained with",
        )
    return network.eval()
