"""Load any encoder that transformers supports, with its tokenizer, and tokenize texts for it."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModel

from electrify.errors import UserError
from electrify.finetuning.options import InitHead
from electrify.models.export import encoder_folder
from electrify.models.fast import enable_fast_path
from electrify.models.pretrained import open_config, open_model, open_tokenizer
from electrify.storage.commit import sha256_of

Encoding = Any
"""A `tokenizers.Encoding`: ids, type_ids, offsets, word_ids."""


class Encoder(NamedTuple):
    """The source of an encoder (folder or Hub name), its configuration and its tokenizer."""

    source: str
    config: Any
    tokenizer: Any

    @property
    def longest(self) -> int:
        """Return the maximum number of tokens the encoder accepts."""
        positions = getattr(self.config, "max_position_embeddings", None) or 512
        padding = getattr(self.config, "pad_token_id", 0) or 0
        offset = self.config.model_type in OFFSET_POSITIONS
        return int(positions) - (padding + 1 if offset else 0)

    @property
    def longest_text(self) -> int:
        """Return the tokenizer's maximum length if it has one, else 512; `longest` at most."""
        limit = int(self.tokenizer.model_max_length)  # 10^30 if the tokenizer has none
        return min(limit if limit < 1_000_000 else 512, self.longest)

    @property
    def pad(self) -> int:
        """Return the id of the padding token."""
        return int(self.tokenizer.pad_token_id)


OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer", "data2vec-text")
"""Architectures whose position ids start after the padding id."""


def open_encoder(source: str) -> Encoder:
    """Load the configuration and the tokenizer of a folder or of a model on the Hub."""
    try:
        config = open_config(source)
    except UserError as error:
        inside = encoder_folder(Path(source))
        if inside.is_dir():
            error.fix = f"did you mean {inside}?"
        raise
    tokenizer = open_tokenizer(source)
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise UserError(
            f"the tokenizer of {source} has no fast (Rust) version",
            got=type(tokenizer).__name__,
            fix="use a model that has a tokenizer.json",
        )
    if tokenizer.pad_token_id is None:
        raise UserError(
            f"the tokenizer of {source} has no padding token",
            got="no pad token",
            fix="add a pad token to the tokenizer",
        )
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text
    return Encoder(source, config, tokenizer)


HEADS_INITIALIZED = {"init_head": "heads were initialized from the seed"}
"""Results from versions that kept the head of the pre-trained model lack this identity field."""


def load_network(kind: Any, source: str) -> Any:
    """Load a complete network of one of transformers' Auto classes, including its head."""
    network, loaded = open_model(kind, source, ignore_mismatched_sizes=True)
    _refuse(_absent(loaded), source, f"its {type(network).__name__}")
    enable_fast_path(network)
    return network


def new_network(kind: Any, source: str, init_head: InitHead = "new", **fields: Any) -> Any:
    """Load a pre-trained encoder and add a new head, initialized from torch's seed.

    Everything outside the base model is initialized, even if `source` has weights for it: the
    `classifier` of an exported discriminator has the shape of a binary classifier, but was trained
    to detect replaced tokens. Weights inside the base model that `source` lacks (BERT's pooler,
    which discriminators do not have) are initialized too; a released model's pooler is loaded.
    `init_head="pretrained"` keeps all weights that match by name and shape.
    """
    network, loaded = open_model(kind, source, ignore_mismatched_sizes=True, **fields)
    _check_encoder(network, loaded, source)
    if init_head == "new":
        prefix, absent = _base_prefix(network), _absent(loaded)
        if not prefix:
            raise UserError(
                f"cannot tell the head of {type(network).__name__} from its encoder",
                got=f"no base model inside the network ({source})",
                fix="use a model of another architecture",
            )
        fresh = kind.from_config(network.config, dtype=torch.float32).state_dict()
        for name, tensor in network.state_dict().items():
            if not name.startswith(prefix) or name in absent:
                tensor.copy_(fresh[name])
    enable_fast_path(network)
    return network


def _absent(loaded: dict[str, Any]) -> set[str]:
    """Return the names of the weights that are missing or have another shape."""
    return {*loaded["missing_keys"], *(name for name, *_ in loaded["mismatched_keys"])}


def _base_prefix(network: Any) -> str:
    """Return the prefix of the base model's weight names; empty if it is the network itself."""
    return f"{network.base_model_prefix}." if network.base_model is not network else ""


def _check_encoder(network: Any, loaded: dict[str, Any], source: str) -> None:
    """Refuse an encoder with missing weights; those of the head and the pooler may be new."""
    prefix = _base_prefix(network)
    absent = {n for n in _absent(loaded) if n.startswith(prefix) and "pooler" not in n}
    _refuse(absent, source, "its encoder")


def _refuse(absent: set[str], source: str, what: str) -> None:
    if absent:
        got = f"{min(absent)} is missing or has another shape, and {len(absent) - 1} more"
        fix = "use a complete model; config.json and model.safetensors must belong together"
        raise UserError(f"{source} lacks weights of {what}", got=got, fix=fix)


def load_backbone(source: str) -> Any:
    """Load an encoder without its head and pooler."""
    backbone, loaded = open_model(AutoModel, source, ignore_mismatched_sizes=True)
    _check_encoder(backbone, loaded, source)
    enable_fast_path(backbone)
    if getattr(backbone, "pooler", None) is not None:
        backbone.pooler = None
    return backbone


def fingerprint(source: str) -> str:
    """Return an identifier of a model and its tokenizer: a hash of its files, or its Hub name."""
    folder = Path(source)
    if not folder.is_dir():
        return source
    suffixes = (".safetensors", ".bin", ".model", ".json", ".txt")
    files = sorted(path for path in folder.iterdir() if path.suffix in suffixes and path.is_file())
    digests = "".join(f"{path.name} {sha256_of(path)}" for path in files)
    return hashlib.sha256(digests.encode()).hexdigest()[:32]


def encode(
    encoder: Encoder, first: Sequence[str], second: Sequence[str] | None, max_tokens: int
) -> list[Encoding]:
    """Tokenize texts or pairs of texts, with special tokens, truncated to `max_tokens`.

    Pairs are truncated as in the official code (see `truncated_lengths`).
    """
    backend = encoder.tokenizer.backend_tokenizer
    room = max_tokens - backend.num_special_tokens_to_add(second is not None)
    if room < 2:
        raise UserError(
            "the maximum length leaves no room for text",
            got=f"{max_tokens} tokens",
            fix="use a larger --length",
        )
    firsts = backend.encode_batch(list(first), add_special_tokens=False)
    if second is None:
        for encoding in firsts:
            encoding.truncate(room)
        return [backend.post_process(encoding) for encoding in firsts]
    seconds = backend.encode_batch(list(second), add_special_tokens=False)
    encodings = []
    for one, other in zip(firsts, seconds, strict=True):
        lengths = truncated_lengths(len(one), len(other), room)
        one.truncate(lengths[0])
        other.truncate(lengths[1])
        encodings.append(backend.post_process(one, other))
    return encodings


def truncated_lengths(first: int, second: int, max_tokens: int) -> tuple[int, int]:
    """Return lengths of two texts that fit: the longer one is truncated, the second on ties.

    >>> truncated_lengths(70, 70, 125), truncated_lengths(10, 200, 125)
    ((63, 62), (10, 115))
    """
    while first + second > max_tokens:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second
