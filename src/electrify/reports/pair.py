"""A discriminator to ask, with its generator if there is one, from wherever they lie."""

# B batch, L length, N slots a row

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from electrify.batches.batch import Batch
from electrify.errors import UserError
from electrify.finetuning.encoder import Encoder, open_encoder
from electrify.models.detectors import open_discriminator, open_masked_lm
from electrify.models.inputs import Framed, call
from electrify.objectives import sampling
from electrify.objectives.masked_lm import predict_slots
from electrify.objectives.rtd import Weights, replaced_logits, weights_of
from electrify.reports.threshold import Threshold, of_metrics, of_run
from electrify.storage.commit import sha256_of
from electrify.tokens import tokenizer as tokenizers
from electrify.tokens.tokenizer import SPECIAL_ROLES, LoadedTokenizer
from electrify.training.folder import RunFolder
from electrify.training.trained import load_trained


class LoadedPair(NamedTuple):
    """Networks that are ready to be asked, and how they read text."""

    name: str
    tokenizer: LoadedTokenizer
    longest: int
    """Tokens that a text has at most, [CLS] and [SEP] among them."""
    discriminator: Any
    generator: Any = None
    weights: Weights = Weights()
    """How the generator is sampled."""
    notes: tuple[str, ...] = ()
    """In words: what one should know before one believes it."""
    threshold: Threshold = Threshold()
    """Which tokens count as replaced."""


@torch.no_grad()
def sampled(
    generator: nn.Module, inputs: Batch[Tensor], weights: Weights, vocab_size: int
) -> Tensor:
    """What a generator puts into the slots: ids_BN, by the slots' uniform numbers.

    Some released networks have more outputs than their tokenizer has tokens; those are not drawn.
    """
    said = predict_slots(generator, inputs, inputs.totals())
    probs_MV = sampling.adjusted(
        said.probs_MV[:, :vocab_size],
        weights.temperature,
        said.original_M,
        weights.disallow_correct,
    )
    sampled_M = sampling.inverse_cdf(probs_MV, inputs.uniforms_BN.flatten())
    return sampled_M.view_as(inputs.positions_BN)


@torch.no_grad()
def suspicion(discriminator: nn.Module, ids_BL: Tensor, frame: Framed) -> Tensor:
    """The probability of each token that it was replaced."""
    probability_BL = torch.sigmoid(replaced_logits(call(discriminator, ids_BL, frame).logits))
    if not probability_BL.isfinite().all():
        raise UserError(
            "the discriminator answers with numbers that are none",
            got="NaN among its probabilities",
            fix="take a checkpoint from before its training broke",
        )
    return probability_BL


def load_pair(source: str) -> LoadedPair:
    """From an export, its discriminator alone, a run, or any discriminator transformers loads."""
    folder = Path(source)
    if (folder / "run.json").is_file():
        return _of_run(folder)
    if (folder / ".parts").is_dir():
        raise UserError(
            f"{source} is not finished", got="an export that was stopped", fix="export it again"
        )
    if (folder / "discriminator").is_dir():
        return _of_folders(source, str(folder / "discriminator"), folder / "generator")
    if folder.is_dir():
        return _of_folders(source, source, folder.absolute().parent / "generator")
    return _of_folders(source, source, None)


def shards_of_run(run: Path) -> Path:
    """The shards a run was begun with: where they were, or beside the run under the same name."""
    about = RunFolder(run).about
    wanted = about["identity"]["data"]["manifest_sha256"]
    named = Path(about["data"])
    for place in (named, run.absolute().parent / named.name):
        manifest = place / "manifest.json"
        if manifest.is_file() and sha256_of(manifest) == wanted:
            return place
    raise UserError(
        f"the shards of {run} are not there",
        got=f"it was trained on {named}, which is missing or was made again",
        fix="run this from the folder in which it was trained, or put the shards beside the run",
    )


def _of_run(run: Path) -> LoadedPair:
    loaded = load_trained(run)
    networks = loaded.objective.networks
    if "discriminator" not in networks:
        raise UserError(
            f"{run} has no discriminator",
            got="a masked-language-model run",
            fix="`electrify show` shows what such a run predicts",
        )
    return LoadedPair(
        f"{run}, step {loaded.step:,}",
        loaded.tokenizer,
        loaded.recipe.run.length,
        networks["discriminator"],
        networks["generator"],
        weights_of(loaded.recipe),
        threshold=of_run(run, loaded.step),
    )


def _of_folders(name: str, discriminator: str, beside: Path | None) -> LoadedPair:
    encoder = open_encoder(discriminator)
    network, notes = open_discriminator(discriminator, encoder.config)
    tokenizer = _tokenizer_of(encoder)
    generator = None
    if beside is None or not (beside / "config.json").is_file():
        notes.append("no generator beside it, so it cannot corrupt texts")
    else:
        generator = open_masked_lm(str(beside))
        if generator.config.vocab_size != network.config.vocab_size:
            notes.append(f"{beside} has another vocabulary, so it cannot corrupt texts")
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
    )


def _tokenizer_of(encoder: Encoder) -> LoadedTokenizer:
    names = {role: getattr(encoder.tokenizer, f"{role}_token") for role in SPECIAL_ROLES}
    return tokenizers.with_special_tokens(
        encoder.tokenizer.backend_tokenizer, {role: name for role, name in names.items() if name}
    )
