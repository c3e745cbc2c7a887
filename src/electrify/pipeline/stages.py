"""The stages from text to a report: each is another command, printed so that you can repeat it."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from electrify.corpora.clean import Filters
from electrify.corpora.corpus import Corpus, corpus, settings_type
from electrify.errors import needs
from electrify.recipes import schema
from electrify.storage.commit import read_manifest
from electrify.storage.folder import Claim
from electrify.tokens.extend import ExtendTokenizer, extend_tokenizer
from electrify.tokens.prepare import Prepare, prepare
from electrify.tokens.vocabulary import MakeTokenizer, make_tokenizer

NO_CHANGES: Mapping[str, Any] = {}


def check_packages() -> None:
    """Check before the first stage that all stages have their optional packages."""
    needs("pyarrow", extra="data,report", why="writing documents")
    needs("matplotlib", extra="data,report", why="the report at the end")


class Stages:
    """The folders of a pipeline below one output folder, and the commands that make them."""

    def __init__(self, out: Path) -> None:
        self.out, self.docs, self.tokenizer = out, out / "docs", out / "tokenizer"
        self.shards, self.run, self.model = out / "shards", out / "run", out / "model"

    def claim(self, identity: str) -> Claim:
        """Lock the output folder; `identity` is what is made in it first."""
        doing = f"training in {self.out}"
        return Claim(self.out, identity, lock="lock", doing=doing, written=["*"])

    def make_documents(self, kind: str, *sources: str | Path, **options: Any) -> None:
        """Turn sources into documents without duplicates; the options are those of the reader."""
        reader = type(settings_type(kind)(sources=(), out=self.docs).reader)(**options)
        announce("corpus", kind, *sources, **options, dedup=True, out=self.docs)
        texts = tuple(map(str, sources))
        corpus(Corpus(sources=texts, out=self.docs, reader=reader, filters=Filters(dedup=True)))

    def read(self, kind: str, sources: Sequence[Path], split: str | None, field: str) -> None:
        """Turn files of a kind into documents; `split` is for plain text, `field` for tables."""
        of_kind: dict[str, dict[str, Any]]
        of_kind = {"text": {"split": split}, "jsonl": {"text": field}}
        of_kind["csv"] = of_kind["parquet"] = of_kind["jsonl"]
        self.make_documents(kind, *sources, **of_kind.get(kind, {}))

    def make_tokenizer(self, **options: Any) -> None:
        """Train a tokenizer on the documents."""
        settings = MakeTokenizer(docs=(self.docs,), out=self.tokenizer, **options)
        announce("tokenizer", self.docs, **_changed(settings))
        make_tokenizer(settings)

    def extend_tokenizer(self, base: str, docs: Sequence[Path], **options: Any) -> None:
        """Add words of documents to a tokenizer."""
        settings = ExtendTokenizer(base=base, docs=tuple(docs), out=self.tokenizer, **options)
        announce("tokenizer extend", base, docs=docs, **_changed(settings, "base"))
        extend_tokenizer(settings)

    def make_shards(
        self,
        docs: Sequence[Path] = (),
        tokenizer: str = "",
        out: Path | None = None,
        **options: Any,
    ) -> None:
        """Turn documents into shards: by default those of the pipeline, with its tokenizer."""
        settings = Prepare(
            docs=tuple(docs) or (self.docs,),
            tokenizer=tokenizer or str(self.tokenizer),
            out=out or self.shards,
            **options,
        )
        announce("prepare", *settings.docs, **_changed(settings))
        prepare(settings)

    def pretrain(
        self,
        name: str,
        budget: str,
        changes: Mapping[str, Any] = NO_CHANGES,
        **options: Any,
    ) -> None:
        """Pre-train with a recipe, some of whose fields may be changed."""
        from electrify.training.options import Pretrain
        from electrify.training.pretrain import pretrain

        recipe = schema.override(schema.load(name), changes)
        options = {"data": self.shards, "out": self.run, "budget": budget, **options}
        announce("pretrain", name, **changes, **options)
        if pretrain(Pretrain(recipe=recipe, **options)):
            raise KeyboardInterrupt  # it has saved a checkpoint and said so

    def export(self, *derived: Path) -> Path:
        """Export the run and return the folder of its encoder.

        If the run was extended since the last export, the model is made again, and folders that
        were derived from it are removed.
        """
        from electrify.models.export import encoder_folder
        from electrify.training.export_run import export_run
        from electrify.training.folder import RunFolder
        from electrify.training.options import Export

        announce("export", self.run, out=self.model)
        if (self.model / "manifest.json").is_file():
            before, run = read_manifest(self.model, "model")["identity"], RunFolder(self.run)
            if before["run"] == run.about["identity"] and before["step"] < run.saved()[0].step:
                for folder in (*filter(Path.is_dir, derived), self.model):
                    shutil.rmtree(folder)
        export_run(Export(self.run, self.model))
        return encoder_folder(self.model)

    def report(self, *results: Path) -> Path:
        """Write the report of the run, and of results of its model."""
        from electrify.reports.options import Report
        from electrify.reports.report import report

        page = self.out / "report.html"
        announce("report", self.run, *results, out=page)
        return report(Report(folders=(self.run, *results), out=page))


def _changed(settings: Any, *given: str) -> dict[str, Any]:
    """Return the options of a command on documents that differ from their defaults."""
    return {
        field.name: value
        for field in fields(settings)
        if field.name not in ("docs", *given)
        and ((value := getattr(settings, field.name)) != field.default or field.default is MISSING)
    }


def announce(*words: object, **options: object) -> None:
    """Print a command as it can be typed."""
    typed: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        values = value if isinstance(value, list | tuple) else [value]
        typed += [flag] if value is True else [flag, *map(str, values)]
    command, *others = map(str, words)
    typed = ["electrify", *command.split(), *others, *typed]
    print(f"\n$ {shlex.join(typed)}", flush=True)
