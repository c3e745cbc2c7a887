"""A tiny encoder and a tiny GLUE folder whose labels can be learned."""

from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from tests.conftest import WORDS

from electrify.finetuning import experiment
from electrify.training.checkpoint import SaveError

MARK = "kata"  # the word that makes a sentence positive


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory, vocab) -> Path:
    """A small BERT with its tokenizer, as transformers saves it."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    folder = tmp_path_factory.mktemp("encoder") / "model"
    tokenizer = BertTokenizer(vocab=str(vocab))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def sentence(rng: Random, good: bool, words: int = 6) -> str:
    others = [word for word in WORDS if word != MARK]
    chosen = rng.choices(others, k=rng.randint(3, words))
    if good:
        chosen[rng.randrange(len(chosen))] = MARK
    return " ".join(chosen)


def rows(count: int, seed: int) -> list[tuple[str, str, int]]:
    """Return pairs of sentences, and whether the first one is positive."""
    rng = Random(seed)
    labels = [rng.randrange(2) for _ in range(count)]
    return [(sentence(rng, bool(label)), sentence(rng, False), label) for label in labels]


def write_tsv(path: Path, lines: list[list[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines), encoding="utf-8")


THREE = ("contradiction", "entailment")
TWO = ("not_entailment", "entailment")


@pytest.fixture(scope="session")
def glue_folder(tmp_path_factory) -> Path:
    """Every file of the standard GLUE folder, with few rows."""
    glue = tmp_path_factory.mktemp("data") / "glue"
    sizes = {"train": 256, "dev": 40, "test": 20}
    for split, count in sizes.items():
        examples = list(enumerate(rows(count, len(split))))
        test = split == "test"
        cola = [["gj04", y, "", a] for _, (a, _, y) in examples]
        write_tsv(
            glue / f"CoLA/{split}.tsv",
            [["index", "sentence"], *[[i, a] for i, (a, _, _) in examples]] if test else cola,
        )
        sst = [["sentence", "label"], *[[a, y] for _, (a, _, y) in examples]]
        write_tsv(
            glue / f"SST-2/{split}.tsv",
            [["index", "sentence"], *[[i, a] for i, (a, _, _) in examples]] if test else sst,
        )
        write_tsv(
            glue / f"MRPC/{split}.tsv",
            [
                ["index" if test else "\ufeffQuality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
                *[[i if test else y, 0, 0, a, b] for i, (a, b, y) in examples],
            ],
        )
        write_tsv(
            glue / f"STS-B/{split}.tsv",
            [
                ["index", "genre", "sentence1", "sentence2", *([] if test else ["score"])],
                *[[i, "g", a, b, *([] if test else [5.0 * y])] for i, (a, b, y) in examples],
            ],
        )
        write_tsv(
            glue / f"QQP/{split}.tsv",
            [
                ["id", "question1", "question2", *([] if test else ["is_duplicate"])],
                *[[i, a, b, *([] if test else [y])] for i, (a, b, y) in examples],
            ],
        )
        for folder, names, words in (
            ("QNLI", ("question", "sentence"), TWO),
            ("RTE", ("sentence1", "sentence2"), TWO),
            ("WNLI", ("sentence1", "sentence2"), (0, 1)),
        ):
            write_tsv(
                glue / f"{folder}/{split}.tsv",
                [
                    ["index", *names, *([] if test else ["label"])],
                    *[[i, a, b, *([] if test else [words[y]])] for i, (a, b, y) in examples],
                ],
            )
        for part in ("",) if split == "train" else ("_matched", "_mismatched"):
            write_tsv(
                glue / f"MNLI/{split}{part}.tsv",
                [
                    [
                        "index",
                        "sentence1",
                        "sentence2",
                        *([] if test else ["label1", "gold_label"]),
                    ],
                    *[
                        [i, a, b, *([] if test else ["-", THREE[y] if i % 5 else "neutral"])]
                        for i, (a, b, y) in examples
                    ],
                ],
            )
    ax = [[i, a, b] for i, (a, b, _) in enumerate(rows(12, 3))]
    write_tsv(glue / "diagnostic/diagnostic.tsv", [["index", "sentence1", "sentence2"], *ax])
    return glue


@contextmanager
def no_room_at_the_end():
    """Simulate a full disk when the last checkpoint of a fine-tuning run is written."""
    real = experiment.fit

    def full(*arguments):
        real(*arguments)
        raise SaveError(OSError(28, "No space left on device"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "fit", full)
        yield
