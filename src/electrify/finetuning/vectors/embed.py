"""`electrify embed MODEL FILE --out VECTORS`: one vector for every text of a file.

VECTORS         committed at the end: .npy, .parquet or .jsonl
VECTORS.parts/  until then: the vectors of 8,192 rows each, which a rerun keeps after a kill

Only texts of the same part share batches, so the bytes do not depend on interruptions.
"""

# N texts, H width

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electrify.config import check_minimum
from electrify.errors import UserError, visible
from electrify.finetuning.devices import finetuning_precision
from electrify.finetuning.encoder import Encoder, fingerprint, load_backbone, open_encoder
from electrify.finetuning.fit import outputs
from electrify.finetuning.options import Embed
from electrify.finetuning.own.data import (
    Columns,
    describe_header,
    extract_texts,
    find_columns,
)
from electrify.finetuning.own.files import DataTable, read_table, read_text
from electrify.finetuning.vectors.model import (
    SentenceEncoder,
    encode_texts,
    find_sentence_model,
    longest_sentence,
    text_rows,
)
from electrify.finetuning.vectors.output import Vectors, check_vector_file, write_vectors
from electrify.jobs import executor
from electrify.models.sentence_folder import SentenceModel
from electrify.progress import duration, progress
from electrify.storage.build import Build, committed_file
from electrify.storage.commit import sha256_of
from electrify.training.engine import Engine

ROWS_PER_PART = 8_192


def embed(settings: Embed) -> Vectors:
    """Write the vectors of the texts of a file, in their order, and return them."""
    check_minimum(settings, length=0, batch_size=1)
    check_vector_file(settings.out)
    if settings.out.resolve() == settings.file.resolve():
        fix = "use another name"
        raise UserError("--out must not be the input file", got=f"{settings.out}", fix=fix)
    model = find_sentence_model(settings.model, settings.pooling)
    model = model._replace(normalize=model.normalize or settings.normalize)
    encoder = open_encoder(model.source)
    table, texts, note = _read_texts(settings)
    model = model._replace(length=longest_sentence(model, encoder, settings.length))
    encode_texts(model, encoder, texts[:1], model.length)  # refuses a length without room for text
    began = time.monotonic()
    parts = settings.out.with_name(f"{settings.out.name}.parts")
    identity = {
        "model": fingerprint(model.source),
        "vectors": {name: v for name, v in model._asdict().items() if name != "source"},
        "file": sha256_of(settings.file),
        "text": settings.text,
        "batch_size": settings.batch_size,
        "precision": finetuning_precision(settings.precision, settings.device),
    }
    embedder = _load(model, encoder, settings)
    with Build(parts, "vectors", identity, files=["part-*.npy"]) as build:
        try:
            records = _make_parts(build, embedder, texts)
        except UserError:
            build.withdraw()
            raise
        files = [parts / record["files"][0]["name"] for record in records]
        vectors_NH = np.concatenate([np.load(path, allow_pickle=False) for path in files])
        write_vectors(settings.out, table, vectors_NH)
    shutil.rmtree(parts, ignore_errors=True)
    truncated = sum(record["truncated"] for record in records)
    _report(settings, model, vectors_NH, note, truncated, time.monotonic() - began)
    return vectors_NH


def _read_texts(settings: Embed) -> tuple[DataTable, list[str], str]:
    """Return the rows of a file, their texts, and a note on what was taken for the text."""
    requested = Columns(settings.text)
    table = read_table(settings.file, read_text(settings.file), requested)
    columns = find_columns(table, requested)
    texts = extract_texts(table, Columns(columns.text)).first
    note = describe_header(table, columns, requested)
    if columns.pair and not settings.text:
        note = (
            f"{settings.file}: texts of column {columns.text!r}; for the others, "
            f"--text {columns.pair!r}"
        )
    return table, texts, note


class Embedder(NamedTuple):
    """A loaded model and how to run it."""

    model: SentenceModel
    encoder: Encoder
    network: SentenceEncoder
    settings: Embed

    def vectors(self, texts: list[str], on_texts: Callable[[int], None]) -> tuple[Vectors, int]:
        """Return the vectors of texts, and how many texts were truncated."""
        encodings = encode_texts(self.model, self.encoder, texts, self.model.length)
        rows = text_rows(encodings, self.encoder.pad)

        def collate(indices: Any) -> Any:
            on_texts(len(indices))
            return rows.collate(indices)

        precision = finetuning_precision(self.settings.precision, self.settings.device)
        size = self.settings.batch_size
        vectors_NH = np.stack(outputs(self.network, rows.lengths, collate, size, precision))
        if not np.isfinite(vectors_NH).all():
            raise UserError(
                "the vectors are not finite",
                got="NaN or infinity",
                fix="use a checkpoint from before training diverged, or --precision float32",
            )
        return vectors_NH, sum(bool(encoding.overflowing) for encoding in encodings)


def _load(model: SentenceModel, encoder: Encoder, settings: Embed) -> Embedder:
    network = SentenceEncoder(load_backbone(model.source), model.pooling, model.normalize)
    network.to(Engine(device=settings.device).device)
    return Embedder(model, encoder, network, settings)


def _make_parts(build: Build, embedder: Embedder, texts: list[str]) -> list[dict[str, Any]]:
    done = 0
    starts = range(0, len(texts), ROWS_PER_PART)
    with progress("embedding") as update, executor(1) as pool:

        def make(start: int, index: int, out: Path) -> dict[str, Any]:
            nonlocal done
            done = start

            def report(count: int) -> None:
                nonlocal done
                done += count
                update(done / len(texts), f"{done:,} texts")

            vectors, truncated = embedder.vectors(texts[start : start + ROWS_PER_PART], report)
            write = partial(_save, vectors)
            file = committed_file(out, f"part-{index:06d}.npy", write)
            return {"files": [file], "truncated": truncated}

        return [*build.make("vectors", starts, make, pool, ahead=1)]


def _save(vectors_NH: Vectors, path: Path) -> None:
    with path.open("wb") as file:  # np.save would add a suffix to a path
        np.save(file, vectors_NH, allow_pickle=False)


def _report(
    settings: Embed,
    model: SentenceModel,
    vectors_NH: Vectors,
    note: str,
    truncated: int,
    seconds: float,
) -> None:
    count, width = vectors_NH.shape
    if truncated:
        cut = f"{truncated:,} texts do not fit into {model.length} tokens and are truncated"
        note = "\n".join(filter(None, [note, f"{settings.file}: {cut}"]))
    how = f"{model.pooling} pooling{', normalized' * model.normalize}"
    made = f"{settings.out}: {count:,} vectors of {width} dimensions, {how} ({duration(seconds)})"
    print(visible("\n".join(filter(None, [note, made]))))
