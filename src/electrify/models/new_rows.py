"""Resize the embeddings of a released network for the new tokens of an extended tokenizer.

Rows of old tokens stay as they are, so the network's outputs for text without new tokens do, too.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch

from electrify.errors import UserError
from electrify.tokens.tokenizer import LoadedTokenizer, load_tokenizer

NewEmbeddings = Literal["mean", "random"]


def old_tokens(tokenizer: LoadedTokenizer, source: str) -> dict[int, list[int]]:
    """Return, for every new id of a tokenizer, the ids of the same text before it was extended.

    Raises an error unless the tokenizer has all tokens of the released model's with their ids.
    """
    released = _released_tokenizer(source)
    old = released.backend.get_vocab(with_added_tokens=True)
    new = tokenizer.backend.get_vocab(with_added_tokens=True)
    moved = [token for token, number in old.items() if new.get(token) != number]
    if moved:
        token = min(moved, key=lambda name: old[name])
        raise UserError(
            "the shards' tokenizer is not an extension of the released model's",
            got=f"{len(moved):,} of {len(old):,} tokens differ, such as {token!r}: {old[token]} in "
            f"{source}, {new.get(token, 'none')} in the shards",
            fix=f"electrify prepare DOCS --tokenizer {source} --out SHARDS, or extend it: "
            f"electrify tokenizer extend {source} --docs DOCS --out TOKENIZER",
        )
    added = {number: token for token, number in new.items() if token not in old}
    # Added tokens are text; vocabulary entries may have a mark such as "Ġ", as the model wants it.
    texts = {token.content for token in tokenizer.backend.get_added_tokens_decoder().values()}
    backend = released.backend
    return {
        number: backend.encode(token, add_special_tokens=False).ids
        if token in texts
        else [piece.id for piece in backend.model.tokenize(token)]
        for number, token in sorted(added.items())
    }


def resize(
    network: Any, size: int, pieces: Mapping[int, Sequence[int]], start: NewEmbeddings
) -> None:
    """Resize input and output embeddings; the rows of new tokens are means of others, or random.

    Rows that no released token has are removed first.
    """
    for rows in (min(pieces, default=size), size):
        if rows != network.config.vocab_size:
            _resize_rows(network, rows)
    if start == "random":
        return
    tensors = _rows_by_token(network)
    with torch.no_grad():
        for tensor in {id(tensor): tensor for tensor in tensors}.values():  # tied ones once
            for number, others in pieces.items():
                if others:
                    tensor[number] = tensor[list(others)].mean(dim=0)


def _resize_rows(network: Any, rows: int) -> None:
    """Resize with transformers, some of whose architectures have methods of their own for it."""
    try:
        network.resize_token_embeddings(rows, mean_resizing=False)
    except TypeError:
        resized = False
    else:
        resized = all(len(tensor) == rows for tensor in _rows_by_token(network))
    if not resized:
        raise UserError(
            f"transformers cannot resize the embeddings of {network.config.model_type}",
            got=f"{rows:,} tokens in the shards' tokenizer",
            fix="prepare the shards with the tokenizer of the released model, not an extended one",
        )


def _rows_by_token(network: Any) -> list[torch.Tensor]:
    """Return the tensors that have a row, or an element, for each token."""
    output = network.get_output_embeddings()
    tensors = [network.get_input_embeddings().weight]
    if output is not None:
        tensors += [t for t in (output.weight, getattr(output, "bias", None)) if t is not None]
    return tensors


@lru_cache(maxsize=2)  # both networks, and the estimates before them, need it
def _released_tokenizer(source: str) -> LoadedTokenizer:
    """Load the tokenizer of a released model: a generator may have that of its discriminator."""
    beside = Path(source).parent / "discriminator"
    has_none = Path(source).is_dir() and not any(Path(source).glob("*token*"))
    has_none = has_none and not (Path(source) / "vocab.txt").exists()
    try:
        return load_tokenizer(beside if has_none and beside.is_dir() else source)
    except UserError as error:
        raise UserError(
            "the shards' tokenizer has another size than the released model, whose tokenizer is "
            "needed to check that it was extended",
            got=f"{source}: {error.got}",
            fix="put the tokenizer files of the released model into its folder",
        ) from error
