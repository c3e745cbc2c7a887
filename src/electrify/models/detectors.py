"""Load discriminators and generators together with their heads, to run them on text."""

from typing import Any

from transformers import AutoModelForMaskedLM, AutoModelForTokenClassification
from transformers.models.electra import ElectraForPreTraining

from electrify.errors import UserError
from electrify.models.pair import REPLACED_LABELS
from electrify.models.pretrained import open_model


def open_discriminator(source: str, config: Any) -> tuple[Any, list[str]]:
    """Load a discriminator with its head; returns notes about what is uncertain, too."""
    architectures, labels = list(config.architectures or []), config.id2label
    notes: list[str] = []
    if "ElectraForPreTraining" in architectures:
        return _load_complete(ElectraForPreTraining, source), notes
    classifies_tokens = any(name.endswith("ForTokenClassification") for name in architectures)
    if classifies_tokens and len(labels) == len(REPLACED_LABELS):
        if labels != REPLACED_LABELS:
            notes.append(f'assumes that its second label, "{labels[1]}", means "replaced"')
        return _load_complete(AutoModelForTokenClassification, source), notes
    raise UserError(
        f"{source} is not a replaced-token detector",
        got=f"{', '.join(architectures)} with {len(labels)} labels"
        if architectures
        else "no architecture in its configuration",
        fix="give a folder from `electrify export`, a run, an ElectraForPreTraining model, "
        "or a token classifier with two labels",
    )


def open_masked_lm(source: str) -> Any:
    """Load a masked language model with its head."""
    return _load_complete(AutoModelForMaskedLM, source)


def _load_complete(kind: Any, source: str) -> Any:
    """Load a network and refuse it if weights are missing: a new head would answer at random."""
    network, loaded = open_model(kind, source)
    if missing := sorted(loaded["missing_keys"]):
        raise UserError(
            f"{source} lacks weights",
            got=f"no {missing[0]}" + (f" and {len(missing) - 1} more" if missing[1:] else ""),
            fix="give the model with the head it was pre-trained with",
        )
    return network.eval()
