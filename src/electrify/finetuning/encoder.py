"""Any encoder of transformers, ours or not: its tokenizer, its body, and texts as its tokens."""

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
    """Where an encoder is, what it is, and its tokenizer."""

    source: str
    config: Any
    tokenizer: Any

    @property
    def longest(self) -> int:
        """The most tokens it can read."""
        places = getattr(self.config, "max_position_embeddings", None) or 512
        padding = getattr(self.config, "pad_token_id", 0) or 0
        counts_past_padding = self.config.model_type in COUNT_PAST_PADDING
        return int(places) - (padding + 1 if counts_past_padding else 0)

    @property
    def longest_text(self) -> int:
        """The most tokens a text should have: what the tokenizer says, if it does."""
        said = int(self.tokenizer.model_max_length)  # 10^30 where it does not know
        return min(said if said < 1_000_000 else 512, self.longest)

    @property
    def pad(self) -> int:
        """The id of padding."""
        return int(self.tokenizer.pad_token_id)


COUNT_PAST_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer", "data2vec-text")


def open_encoder(source: str) -> Encoder:
    """The configuration and the tokenizer of a folder or of a model on the Hub."""
    try:
        config = open_config(source)
    except UserError as error:
        inside = encoder_folder(Path(source))
        if inside.is_dir():
            error.fix = f"perhaps {inside}"
        raise
    tokenizer = open_tokenizer(source)
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        got = type(tokenizer).__name__
        fix = "take one that has a tokenizer.json"
        raise UserError(f"the tokenizer of {source} has no fast form", got=got, fix=fix)
    if tokenizer.pad_token_id is None:
        raise UserError(
            f"the tokenizer of {source} has no padding", got="no pad token", fix="add one"
        )
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text
    return Encoder(source, config, tokenizer)


HEADS_DRAWN = {"init_head": "heads were drawn by the seed"}
"""Identities of results that kept the head of a pre-trained model lack this field."""


def load_network(kind: Any, source: str) -> Any:
    """Load a complete network of one of transformers' Auto classes, its head included."""
    network, loaded = open_model(kind, source, ignore_mismatched_sizes=True)
    _refuse(_absent(loaded), source, f"its {type(network).__name__}")
    enable_fast_path(network)
    return network


def new_network(kind: Any, source: str, init_head: InitHead = "new", **fields: Any) -> Any:
    """Load a pre-trained encoder and put a new head on it, drawn by torch's seed.

    Everything outside the base model is drawn, whatever weights `source` has for it: the
    `classifier` of an exported discriminator fits any binary task, but it was trained to find
    replaced tokens. Weights inside the base model that `source` lacks (BERT's pooler, which
    discriminators do not have) are drawn as well; a released model's pooler is loaded.
    `init_head="pretrained"` keeps whatever fits by name and shape.
    """
    network, loaded = open_model(kind, source, ignore_mismatched_sizes=True, **fields)
    _check_encoder(network, loaded, source)
    if init_head == "new":
        prefix, absent = _base_prefix(network), _absent(loaded)
        if not prefix:
            raise UserError(
                f"the head of {type(network).__name__} cannot be told from its encoder",
                got=f"no base model inside it ({source})",
                fix="use a model of another architecture",
            )
        drawn = kind.from_config(network.config, dtype=torch.float32).state_dict()
        for name, tensor in network.state_dict().items():
            if not name.startswith(prefix) or name in absent:
                tensor.copy_(drawn[name])
    enable_fast_path(network)
    return network


def _absent(loaded: dict[str, Any]) -> set[str]:
    """Return the names of the weights that are missing or have another shape."""
    return {*loaded["missing_keys"], *(name for name, *_ in loaded["mismatched_keys"])}


def _base_prefix(network: Any) -> str:
    """Return how the names of the base model's weights start; empty where it is the network."""
    return f"{network.base_model_prefix}." if network.base_model is not network else ""


def _check_encoder(network: Any, loaded: dict[str, Any], source: str) -> None:
    """Heads may be new; an encoder whose own weights are new is one that nobody trained."""
    inside = {name for name in _absent(loaded) if name.startswith(_base_prefix(network))}
    _refuse({name for name in inside if "pooler" not in name}, source, "its encoder")


def _refuse(absent: set[str], source: str, what: str) -> None:
    if absent:
        got = f"no {min(absent)} of the right size, and {len(absent) - 1} more"
        fix = "give a complete model; config.json and model.safetensors must belong together"
        raise UserError(f"{source} lacks weights of {what}", got=got, fix=fix)


def load_backbone(source: str) -> Any:
    """An encoder without heads, and without a pooler where it can do without."""
    body, loaded = open_model(AutoModel, source, ignore_mismatched_sizes=True)
    _check_encoder(body, loaded, source)
    enable_fast_path(body)
    if getattr(body, "pooler", None) is not None:
        body.pooler = None
    return body


def fingerprint(source: str) -> str:
    """What identifies a model and its tokenizer: a hash of its files, or its name on the Hub."""
    folder = Path(source)
    if not folder.is_dir():
        return source
    wanted = (".safetensors", ".bin", ".model", ".json", ".txt")
    files = sorted(path for path in folder.iterdir() if path.suffix in wanted and path.is_file())
    digests = "".join(f"{path.name} {sha256_of(path)}" for path in files)
    return hashlib.sha256(digests.encode()).hexdigest()[:32]


def encode(
    encoder: Encoder, first: Sequence[str], second: Sequence[str] | None, most: int
) -> list[Encoding]:
    """Every text, or pair of texts, as tokens with [CLS] and [SEP], at most `most` of them.

    The longer of two loses its last token until both fit, the second on ties, as officially.
    """
    backend = encoder.tokenizer.backend_tokenizer
    room = most - backend.num_special_tokens_to_add(second is not None)
    if room < 2:
        raise UserError("no room for text", got=f"{most} tokens", fix="allow more tokens")
    firsts = backend.encode_batch(list(first), add_special_tokens=False)
    if second is None:
        for one in firsts:
            one.truncate(room)
        return [backend.post_process(one) for one in firsts]
    seconds = backend.encode_batch(list(second), add_special_tokens=False)
    made = []
    for one, other in zip(firsts, seconds, strict=True):
        lengths = truncated(len(one), len(other), room)
        one.truncate(lengths[0])
        other.truncate(lengths[1])
        made.append(backend.post_process(one, other))
    return made


def truncated(first: int, second: int, most: int) -> tuple[int, int]:
    """Lengths of two texts that fit together: the longer one loses tokens, the second on ties.

    >>> truncated(70, 70, 125), truncated(10, 200, 125)
    ((63, 62), (10, 115))
    """
    while first + second > most:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second
