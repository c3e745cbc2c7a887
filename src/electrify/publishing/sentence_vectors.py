"""Write an encoder as a folder that `SentenceTransformer(folder)` loads.

OUT/sentence-transformers holds the encoder, its tokenizer, the pooling and a model card. The
library loads it and must give the vectors of our own pooling before it counts as finished.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfile, rmtree
from typing import Any

import numpy as np
from transformers.utils import logging

from electrify.errors import UserError, needs
from electrify.finetuning.encoder import fingerprint, load_backbone, open_encoder
from electrify.finetuning.experiment import TO_PUBLISH, publish
from electrify.finetuning.fit import outputs
from electrify.finetuning.vectors.model import SentenceEncoder, encode_texts, text_rows
from electrify.finetuning.vectors.output import Vectors
from electrify.models.pooling import Pooling
from electrify.models.sentence_folder import SentenceModel, write_sentence_folder
from electrify.storage.build import Build
from electrify.storage.commit import committed

SENTENCES_FOLDER = "sentence-transformers"
VECTOR_TOLERANCE = 1e-5
PROBE_TEXTS = (
    "A cat.",
    "The quick brown fox jumps over the lazy dog, twice, and then rests in the shade of a tree.",
    "",
    "word " * 3000,
)
"""Texts of different lengths, to compare vectors: padded ones, an empty one and a truncated one."""


def need_sentence_transformers() -> Any:
    """Import the library, or name the extra that installs it."""
    return needs("sentence_transformers", extra="sentences", why="--sentence-transformers")


def export_sentence_vectors(encoder: Path, out: Path, pooling: Pooling) -> Path:
    """Write the folder for an exported encoder; texts are truncated as its tokenizer says."""
    library, opened = need_sentence_transformers(), open_encoder(str(encoder))
    model = SentenceModel(str(encoder), pooling, length=opened.longest_text)
    identity = {"model": fingerprint(str(encoder)), "pooling": pooling, "longest": model.length}
    with Build(out, SENTENCES_FOLDER, identity, files=["*", "1_Pooling/*"]) as build:
        if not build.finished:
            staged = build.staging / TO_PUBLISH
            rmtree(staged, ignore_errors=True)  # left by a process that was killed
            staged.mkdir()
            for path in filter(lambda path: path.suffix != ".md", encoder.iterdir()):
                copyfile(path, staged / path.name)
            write_sentence_folder(staged, model, opened.config.hidden_size)
            with _quiet_loading():
                difference = vector_difference(library, staged, model)
            build.finish({"files": publish(out, build.staging)})
            print(
                f"{out}: {pooling} pooling, at most {model.length} tokens; SentenceTransformer "
                f"differs from our own vectors by at most {difference:.1g}"
            )
    return out


def write_sentence_card(folder: Path, text: str) -> None:
    """Write the card of a finished folder.

    The manifest does not list it: the manifest is one of the files that identify the model in
    results, which must stay the same when their scores are added to the card.
    """
    with committed(folder / "README.md") as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def _quiet_loading() -> Iterator[None]:
    """Silence transformers, which reports that an encoder has no weights for a pooler."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)


def vector_difference(library: Any, folder: Path, model: SentenceModel) -> float:
    """Return the largest difference between the library's vectors and ours; refuse a large one."""
    loaded = library.SentenceTransformer(str(folder), device="cpu")
    found, wanted = (
        loaded.encode(list(PROBE_TEXTS), show_progress_bar=False),
        own_vectors(model, PROBE_TEXTS),
    )
    difference = float(abs(found - wanted).max())
    if not difference <= VECTOR_TOLERANCE * max(1.0, float(abs(wanted).max())):
        raise UserError(
            "sentence-transformers does not give the vectors of the encoder",
            got=f"they differ by {difference:.2g} with {model.pooling} pooling",
            fix="use the versions in constraints.txt; the other folders are unchanged",
        )
    return difference


def own_vectors(model: SentenceModel, texts: Sequence[str]) -> Vectors:
    """Return the vectors of texts, computed without the library."""
    encoder = open_encoder(model.source)
    network = SentenceEncoder(load_backbone(model.source), model.pooling, model.normalize)
    rows = text_rows(encode_texts(model, encoder, texts, model.length), encoder.pad)
    return np.stack(outputs(network, rows.lengths, rows.collate))
