"""Leave out documents that share text with evaluation files: `python benchmarks/overlap.py --help`.

A document is left out if it shares 13 consecutive words with an example of a development or test
file. Shorter examples cannot be found in this way; among single sentences there are many.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from electrify.corpora.document import Document, read_parquet, row_groups
from electrify.finetuning.glue.data import read_split
from electrify.finetuning.glue.tasks import TASKS, GlueTask

WORDS = 13
WORD = re.compile(r"\w+")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("documents", type=Path, nargs="+", help="folders of electrify corpus")
    parser.add_argument("--glue", type=Path, required=True)
    parser.add_argument("--tasks", required=True, help="comma-separated")
    parser.add_argument("--out", type=Path, required=True, help="a folder for .jsonl files")
    args = parser.parse_args()
    tasks = [TASKS[name] for name in args.tasks.split(",")]
    seen = {task.title: evaluated(args.glue, task) for task in tasks}
    args.out.mkdir(parents=True, exist_ok=True)
    for folder in args.documents:
        print(keep_clean(folder, seen, args.out / f"{folder.name}.jsonl"), flush=True)


def evaluated(glue: Path, task: GlueTask) -> set[str]:
    """Return the n-grams of the development and test examples of a task."""
    found: set[str] = set()
    for split in (*task.dev_splits, "test"):
        examples = read_split(glue, task, split)
        texts = [*examples.first, *(examples.second or ())]
        found.update(gram for text in texts for gram in ngrams(text))
    return found


def ngrams(text: str) -> Iterator[str]:
    """Yield every 13 consecutive words of a text, in lower case and without punctuation.

    >>> list(ngrams("A b, c d e f g h i j k l m. N"))
    ['a b c d e f g h i j k l m', 'b c d e f g h i j k l m n']
    """
    words = WORD.findall(text.lower())
    return (" ".join(words[i : i + WORDS]) for i in range(len(words) - WORDS + 1))


def keep_clean(folder: Path, seen: dict[str, set[str]], out: Path) -> str:
    """Write the documents without overlap and return a sentence about the others."""
    left_out: Counter[str] = Counter()
    characters, kept = 0, 0
    with out.open("w", encoding="utf-8") as file:
        for document in read_parquet(row_groups(folder)):
            overlapping = shared_with(document, seen)
            if overlapping:
                left_out.update(["documents", *overlapping])
                characters += len(document.text)
                continue
            kept += 1
            print(json.dumps({"id": document.id, "text": document.text}), file=file)
    tasks = ", ".join(f"{left_out[title]} with {title}" for title in seen if left_out[title])
    return (
        f"{folder.name}: {left_out['documents']} of {left_out['documents'] + kept} documents "
        f"({characters / 1e6:.1f} MB) share {WORDS} words with an evaluation file and are left out"
        + (f": {tasks}" if tasks else "")
    )


def shared_with(document: Document, seen: dict[str, set[str]]) -> list[str]:
    """Return the tasks whose evaluation files share an n-gram with a document."""
    grams: Iterable[str] = set(ngrams(document.text))
    return [title for title, found in seen.items() if not found.isdisjoint(grams)]


if __name__ == "__main__":
    main()
