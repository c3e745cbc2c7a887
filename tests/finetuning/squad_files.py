"""Small SQuAD files for tests: paragraphs of made-up words, questions by one word."""

import json
import lzma
from pathlib import Path
from random import Random
from typing import Any

from tests.conftest import WORDS

from electrify.finetuning.squad.data import Gold, Question


def question(context: str, answer: str | None, number: str = "q", text: str = "kata") -> Question:
    """Return a question whose answer is at its first occurrence in the context."""
    golds = () if answer is None else (Gold(answer, context.index(answer)),)
    return Question(number, text, context, golds)


def paragraphs(count: int, seed: int = 0, unanswerable: bool = False) -> list[dict[str, Any]]:
    """Return paragraphs; a question is a word of the context, its answer the next two words."""
    rng = Random(seed)
    result = []
    for number in range(count):
        words = rng.sample(WORDS, 12)
        context = " ".join(words)
        qas = []
        for i, index in enumerate(rng.sample(range(9), 2)):
            answer = " ".join(words[index + 1 : index + 3])
            entry = {"id": f"{number}-{i}", "question": words[index]}
            entry["answers"] = [{"text": answer, "answer_start": context.index(answer)}]
            if unanswerable:
                entry["is_impossible"] = i == 1
            if unanswerable and i == 1:
                entry["question"] = "kata kata kata"
                entry["plausible_answers"] = entry.pop("answers")
                entry["answers"] = []
            qas.append(entry)
        result.append({"context": context, "qas": qas})
    return result


def write_squad(path: Path, content: list[dict[str, Any]], version: str = "1.1") -> Path:
    """Write a SQuAD file, compressed if its name ends in .xz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = {"version": version, "data": [{"title": "made up", "paragraphs": content}]}
    text = json.dumps(file, ensure_ascii=False)
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path
