"""Options of `export`, without heavy imports, so that --help is fast."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from electrify.training.options import Export


@dataclass(frozen=True)
class ExportModel(Export):
    """Export the networks of a run for transformers, with tokenizer and model card.

    Run the same command with more options to add to a finished export: other formats, facts and
    scores in its model cards, a copy on the Hugging Face Hub.
    """

    sentence_transformers: bool = False
    """Also write DIR/sentence-transformers, which SentenceTransformer loads."""
    pooling: Literal["mean", "cls", "max"] = "mean"
    """How sentence vectors are made of token vectors: mean, first token (cls) or maximum."""
    onnx: bool = False
    """Also write DIR/onnx: every network for ONNX Runtime."""
    push: str = ""
    """Hub repository to upload to, such as me/my-model."""
    private: bool = False
    """Make a new Hub repository private."""
    revision: str = ""
    """Hub branch to upload to, main by default; step-N uploads the checkpoint of step N."""
    scores: tuple[Path, ...] = ()
    """Result folders (glue, squad, blimp, suite) for the cards; else those beside run or DIR."""
    language: tuple[str, ...] = ()
    """Languages of the model for its cards, as ISO codes such as en."""
    license: str = ""
    """Licence of the model for its cards, as the Hub names it, such as apache-2.0."""
    dataset: tuple[str, ...] = ()
    """Datasets that the model was trained on for its cards, as the Hub names them."""
    base_model: str = ""
    """Hub name of the model that training started from, for the cards."""
