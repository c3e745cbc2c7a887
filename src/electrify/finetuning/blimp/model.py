"""Find, classify and load the model that scores sentences."""

from pathlib import Path

from electrify.errors import UserError
from electrify.finetuning.blimp.scoring import OriginalScorer, PseudoLikelihoodScorer, Scorer
from electrify.finetuning.encoder import Encoder
from electrify.finetuning.options import ScoreKind
from electrify.models.detectors import open_discriminator, open_masked_lm
from electrify.models.fast import enable_fast_path
from electrify.models.pretrained import open_config
from electrify.training.engine import Engine


def scored_model(source: str) -> str:
    """Return the folder of the model to score: in an export, the discriminator or the masked LM."""
    folder = Path(source)
    if (folder / "run.json").is_file():
        raise UserError(
            f"{source} is a run, not an exported model",
            got="a folder with run.json",
            fix=f"electrify export {source} --out model; or, for all its checkpoints, "
            f"electrify probe {source} --tasks blimp --data DIR --out probe",
        )
    inside = (folder / role for role in ("discriminator", "model"))
    found = (path for path in inside if (path / "config.json").is_file())
    return source if (folder / "config.json").is_file() else str(next(found, source))


def kind_of(source: str) -> ScoreKind:
    """Return how a model scores sentences, according to its architecture."""
    architectures = list(open_config(source).architectures or [])
    for ending, kind in KINDS_BY_ENDING.items():
        if any(name.endswith(ending) for name in architectures):
            return kind
    beside = Path(source).absolute().parent / "discriminator"
    raise UserError(
        f"{source} has no head that scores sentences",
        got=", ".join(architectures) or "no architecture in its configuration",
        fix=f"did you mean {beside}?"
        if (beside / "config.json").is_file()
        else "use a discriminator or a masked language model; an encoder alone, such as one for "
        "sentence vectors, cannot score words",
    )


KINDS_BY_ENDING: dict[str, ScoreKind] = {
    "ElectraForPreTraining": "original",
    "ForTokenClassification": "original",
    "ForMaskedLM": "pseudo-likelihood",
    "ForPreTraining": "pseudo-likelihood",  # of BERT and ALBERT: a masked-LM head and another
}


def load_scorer(source: str, kind: ScoreKind, encoder: Encoder, device: str = "auto") -> Scorer:
    """Load a model with its head, ready to score sentences."""
    scorer = _LOADERS[kind](source, encoder)
    enable_fast_path(scorer.network)
    scorer.network.to(Engine(device=device).device)
    return scorer


def _load_discriminator(source: str, encoder: Encoder) -> Scorer:
    network, notes = open_discriminator(source, encoder.config)
    for note in notes:
        print(f"note: {note}")
    return OriginalScorer(network)


def _load_masked_lm(source: str, encoder: Encoder) -> Scorer:
    mask = encoder.tokenizer.mask_token_id
    if mask is None:
        raise UserError(
            f"the tokenizer of {source} has no mask token",
            got="no mask token",
            fix="use a masked language model",
        )
    return PseudoLikelihoodScorer(open_masked_lm(source), mask)


_LOADERS = {"original": _load_discriminator, "pseudo-likelihood": _load_masked_lm}
