"""Write an encoder as a folder that `SentenceTransformer(folder)` loads.

OUT/sentence-transformers holds the encoder, its tokenizer, the pooling and a model card. It is
loaded again and must give the vectors of our own pooling before it counts as finished.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel
from transformers.utils import logging

from electrify.errors import UserError, needs
from electrify.finetuning.encoder import fingerprint
from electrify.models.pooling import Pooling, pool
from electrify.models.pretrained import open_model, open_tokenizer
from electrify.storage.build import Build, committed_file

SENTENCES_FOLDER = "sentence-transformers"
VECTOR_TOLERANCE = 1e-5
PROBES = (
    "A cat.",
    "The quick brown fox jumps over the lazy dog, twice, and then rests in the shade of a tree.",
    "",
    "word " * 3000,
)
"""Texts of different lengths, to compare vectors: padded ones, an empty one and a truncated one."""


def sentence_transformers() -> Any:
    """Import the library, or name the extra that installs it."""
    why = "--sentence-transformers"
    needs("sentence_transformers.sentence_transformer.modules", extra="sentences", why=why)
    return needs("sentence_transformers", extra="sentences", why=why)


def export_sentence_vectors(encoder: Path, out: Path, pooling: Pooling, longest: int) -> Path:
    """Write the folder for an exported encoder, truncating texts to `longest` tokens."""
    library = sentence_transformers()
    identity = {"model": fingerprint(str(encoder)), "pooling": pooling, "longest": longest}
    with Build(out, SENTENCES_FOLDER, identity, files=["*", "1_Pooling/*"]) as build:
        if not build.finished:
            staged = build.staging / "folder"
            with quiet_loading():
                _write(library, encoder, staged, pooling, longest)
                difference = vector_difference(library, encoder, staged, pooling, longest)
            if not difference <= VECTOR_TOLERANCE:
                raise UserError(
                    "sentence-transformers does not give the vectors of the encoder",
                    got=f"they differ by {difference:.2g} with {pooling} pooling",
                    fix="use the versions in constraints.txt; the other folders are unchanged",
                )
            build.finish({"files": committed_folder(build, staged)})
            print(f"{out}: {pooling} pooling, vectors differ by at most {difference:.1g}")
    return out


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Silence transformers, which reports that an encoder has no weights for a pooler."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)


def _write(library: Any, encoder: Path, folder: Path, pooling: Pooling, longest: int) -> None:
    modules = library.sentence_transformer.modules
    transformer = modules.Transformer(str(encoder), max_seq_length=longest)
    if getattr(transformer.model, "pooler", None) is not None:
        transformer.model.pooler = None  # has new weights, which nothing here uses
    pool_module = modules.Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)
    model = library.SentenceTransformer(modules=[transformer, pool_module], device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)


def vector_difference(
    library: Any, encoder: Path, folder: Path, pooling: Pooling, longest: int
) -> float:
    """Return the largest difference between the library's vectors and those of our own pooling."""
    model = library.SentenceTransformer(str(folder), device="cpu")
    found = torch.from_numpy(model.encode(list(PROBES), show_progress_bar=False))
    wanted = sentence_vectors(encoder, PROBES, pooling, longest)
    return float((found.float() - wanted).abs().max())


@torch.no_grad()
def sentence_vectors(encoder: Path, texts: Sequence[str], pooling: Pooling, longest: int) -> Tensor:
    """Return the vectors of texts, one at a time, so that no vector depends on padding."""
    network, tokenizer = open_model(AutoModel, str(encoder))[0].eval(), open_tokenizer(str(encoder))
    vectors = []
    for text in texts:
        tokens = tokenizer(text, truncation=True, max_length=longest, return_tensors="pt")
        vectors.append(pool(network(**tokens)[0], tokens["attention_mask"], pooling))
    return torch.cat(vectors)


def committed_folder(build: Build, staged: Path, prefix: str = "") -> list[dict[str, Any]]:
    """Commit the files of a staged folder to a build; returns their manifest entries."""
    entries = []
    for path in sorted(path for path in staged.rglob("*") if path.is_file()):
        name = f"{prefix}{path.relative_to(staged).as_posix()}"
        (build.out / name).parent.mkdir(parents=True, exist_ok=True)
        entries.append(committed_file(build.out, name, partial(_move, path)))
    return entries


def _move(path: Path, target: Path) -> None:
    path.replace(target)
