"""Load a discriminator, and its generator if there is one, from a run, an export or a hub name."""

# B batch, L length, N slots per row, M = B × N slots, V vocabulary

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from electrify.batches.batch import Batch
from electrify.errors import UserError
from electrify.finetuning.encoder import Encoder, open_encoder
from electrify.models.detectors import open_discriminator, open_masked_lm
from electrify.models.inputs import ModelInputs, call
from electrify.objectives.masked_lm import predict_slots
from electrify.objectives.rtd import Weights, replaced_logits, sampler, weights_of
from electrify.reports.threshold import Threshold, of_metrics, of_run
from electrify.storage.commit import read_manifest
from electrify.tokens import tokenizer as tokenizers
from electrify.tokens.tokenizer import SPECIAL_ROLES, LoadedTokenizer
from electrify.training.folder import RunFolder
from electrify.training.trained import load_trained


class LoadedPair(NamedTuple):
    """Networks that are ready for inference, and their tokenizer."""

    name: str
    tokenizer: LoadedTokenizer
    longest: int
    """Maximum number of tokens in a text, including [CLS] and [SEP]."""
    discriminator: Any
    generator: Any = None
    weights: Weights = Weights()
    """The sampling settings of the generator."""
    notes: tuple[str, ...] = ()
    """Caveats to show with the predictions."""
    threshold: Threshold = Threshold()
    """Which tokens to flag as replaced."""
    run: tuple[Path, int] | None = None
    """The run and the step that it comes from, if known."""


@torch.no_grad()
def sampled(
    generator: nn.Module, inputs: Batch[Tensor], weights: Weights, vocab_size: int
) -> Tensor:
    """Return the ids_BN that a generator samples for the slots, with their uniform numbers.

    Some released networks have more outputs than their tokenizer has tokens; those are not drawn.
    """
    sample = sampler(weights, inputs.uniforms_BN.flatten())
    sampled_M = predict_slots(
        generator,
        inputs,
        inputs.totals(),
        lambda probs_CV, *others: sample(probs_CV[:, :vocab_size], *others),
    ).sampled_M
    return sampled_M.view_as(inputs.positions_BN)


@torch.no_grad()
def replaced_probs(discriminator: nn.Module, ids_BL: Tensor, frame: ModelInputs) -> Tensor:
    """Return the probability of each token that it was replaced."""
    probs_BL = torch.sigmoid(replaced_logits(call(discriminator, ids_BL, frame).logits))
    if not probs_BL.isfinite().all():
        raise UserError(
            "the discriminator's predictions are not finite",
            got="NaN among its probabilities",
            fix="use a checkpoint from before training diverged",
        )
    return probs_BL


def load_pair(source: str) -> LoadedPair:
    """Load from an export, its discriminator, a run, or a model that transformers can load."""
    folder = Path(source)
    if (folder / "run.json").is_file():
        return _of_run(folder)
    if (folder / ".parts").is_dir():
        raise UserError(
            f"{source} is not finished",
            got="an interrupted export",
            fix="run `electrify export` again",
        )
    if (folder / "discriminator").is_dir():
        return _of_folders(source, str(folder / "discriminator"), folder / "generator")
    if folder.is_dir():
        return _of_folders(source, source, folder.absolute().parent / "generator")
    return _of_folders(source, source, None)


def _of_run(run: Path) -> LoadedPair:
    loaded = load_trained(run)
    networks = loaded.objective.networks
    if "discriminator" not in networks:
        raise UserError(
            f"{run} has no discriminator",
            got="a masked-language-model run",
            fix="use `electrify show` to see what such a run predicts",
        )
    return LoadedPair(
        f"{run}, step {loaded.step:,}",
        loaded.tokenizer,
        loaded.recipe.run.length,
        networks["discriminator"],
        networks["generator"],
        weights_of(loaded.recipe),
        threshold=of_run(run, loaded.step),
        run=(run, loaded.step),
    )


def _of_folders(name: str, discriminator: str, beside: Path | None) -> LoadedPair:
    encoder = open_encoder(discriminator)
    network, notes = open_discriminator(discriminator, encoder.config)
    tokenizer = _tokenizer_of(encoder)
    generator = None
    if beside is None or not (beside / "config.json").is_file():
        notes.append("no generator next to it, so it cannot corrupt texts")
    else:
        generator = open_masked_lm(str(beside))
        if generator.config.vocab_size != network.config.vocab_size:
            notes.append(f"{beside} has a different vocabulary, so it cannot corrupt texts")
            generator = None
    threshold = of_metrics(getattr(network.config, "replaced_token_detection", None) or {})
    return LoadedPair(
        name,
        tokenizer,
        encoder.longest_text,
        network,
        generator,
        notes=tuple(notes),
        threshold=threshold,
        run=_exported_run(Path(discriminator).absolute().parent),
    )


def _exported_run(export: Path) -> tuple[Path, int] | None:
    """Return the run next to an export that it was made of, and the step."""
    if not (export / "manifest.json").is_file():
        return None
    with suppress(UserError, KeyError):  # a folder that is not ours
        identity = read_manifest(export, "model")["identity"]
        for file in sorted(export.parent.glob("*/run.json")):
            if RunFolder(file.parent).about["identity"] == identity["run"]:
                return file.parent, identity["step"]
    return None


def _tokenizer_of(encoder: Encoder) -> LoadedTokenizer:
    names = {role: getattr(encoder.tokenizer, f"{role}_token") for role in SPECIAL_ROLES}
    return tokenizers.with_special_tokens(
        encoder.tokenizer.backend_tokenizer, {role: name for role, name in names.items() if name}
    )
