"""Sentence vectors: an encoder whose token vectors are pooled into one vector for each text."""

# B batch, L length, H width

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from electrify.errors import UserError
from electrify.finetuning.batches import padded
from electrify.finetuning.encoder import Encoder, Encoding, encode
from electrify.finetuning.heads import OnBackbone
from electrify.finetuning.options import PoolingChoice
from electrify.models.export import encoder_folder
from electrify.models.inputs import ModelInputs, call
from electrify.models.pooling import Pooling, pool
from electrify.models.sentence_folder import UNLIMITED, SentenceModel, read_sentence_folder


def find_sentence_model(source: str, pooling: PoolingChoice = "auto") -> SentenceModel:
    """Return how a folder or Hub model makes vectors; `pooling` is what the user chose.

    The folder of an export stands for the encoder in it.
    """
    folder = Path(source)
    if (folder / "run.json").is_file():
        raise UserError(
            f"{source} is a run, not an exported model",
            got="a folder with run.json",
            fix=f"electrify export {source} --out model, then use model/encoder",
        )
    if folder.is_dir() and not any((folder / n).is_file() for n in ("config.json", "modules.json")):
        inside = encoder_folder(folder)
        source = str(inside) if inside.is_dir() else source
    model = read_sentence_folder(source) or SentenceModel(source)
    chosen: tuple[Pooling, ...] = get_args(Pooling)
    return next((model._replace(pooling=how) for how in chosen if how == pooling), model)


def longest_sentence(model: SentenceModel, encoder: Encoder, requested: int = 0) -> int:
    """Return the maximum number of tokens: as requested, the model's own, or the tokenizer's."""
    if model.length == UNLIMITED:
        return min(requested or int(encoder.tokenizer.model_max_length), encoder.longest)
    return min(requested or model.length or encoder.longest_text, encoder.longest)


def encode_texts(
    model: SentenceModel, encoder: Encoder, texts: Sequence[str], length: int
) -> list[Encoding]:
    """Tokenize texts, with the model's prompt before each."""
    given = (model.prompt + text for text in texts)
    return encode(encoder, [t.lower() if model.lowercase else t for t in given], None, length)


class TextRows(NamedTuple):
    """Tokenized texts without labels."""

    ids: list[NDArray[np.int64]]
    types: list[NDArray[np.int64]]
    pad: int

    @property
    def lengths(self) -> list[int]:
        """Return the number of tokens of each text."""
        return [len(ids) for ids in self.ids]

    def collate(self, indices: NDArray[np.int64]) -> "TextBatch":
        """Return the texts at the given indices as a batch, padded to the longest of them."""
        ids, types = ([column[index] for index in indices] for column in (self.ids, self.types))
        return TextBatch(*padded(ids, types, self.pad))


def text_rows(encodings: Sequence[Encoding], pad: int) -> TextRows:
    """Return encodings as rows."""
    ids, types = ([np.array(getattr(e, n)) for e in encodings] for n in ("ids", "type_ids"))
    return TextRows(ids, types, pad)


class TextBatch(NamedTuple):
    """A batch of texts, as tensors."""

    ids_BL: Tensor
    attention_BL: Tensor
    """1 for real tokens, 0 for padding."""
    types_BL: Tensor


class SentenceEncoder(OnBackbone):
    """An encoder with pooling."""

    def __init__(self, backbone: Any, pooling: Pooling, normalize: bool = False) -> None:
        super().__init__(backbone)
        self.pooling, self.normalize = pooling, normalize

    def vectors(self, ids_BL: Tensor, inputs: ModelInputs) -> Tensor:
        """Return one float32 vector for each text."""
        hidden_BLH = call(self.body, ids_BL, inputs)[0].float()
        vectors_BH = pool(hidden_BLH, inputs.attention_BL, self.pooling)
        return functional.normalize(vectors_BH, dim=-1) if self.normalize else vectors_BH

    def logits(self, batch: TextBatch) -> Tensor:
        """Return the vectors, which are what `fit.outputs` collects."""
        return self.vectors(batch.ids_BL, batch)
