"""Compare `electrify corpus wikipedia` with wikiextractor on one dump: residue, words and speed.

    python benchmarks/wikipedia.py DUMP [--rounds 5]

wikiextractor (AGPL) is run as a separate program if `wikiextractor` is on the PATH or next to this
Python; it is not imported and not required. Both use one process and write to disk. Words are
counted on the pages that both keep; wikiextractor keeps headings, electrify keeps list items.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from side_by_side import measure, report, where

from electrify.corpora.archive import read_blocks
from electrify.corpora.document import read_parquet, row_groups

RESIDUE = re.compile(
    r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}|==|</?ref|&(?:#\d+|#x[0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]+);"
    r"|thumb\||\|thumb|</?[a-zA-Z][a-zA-Z0-9]*(?:\s[^<>]*)?/?>|''|__[A-Z]+__"
    r"|style=|colspan|rowspan|align=|bgcolor=|cellpadding|<!--|-->"
)
WORD = re.compile(r"\w+")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dump", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmark") as folder:
        compare(args, Path(folder))


def compare(args: argparse.Namespace, work: Path) -> None:
    """Time both, then compare their output."""
    local = Path(sys.executable).with_name("wikiextractor")
    rival = str(local) if local.exists() else shutil.which("wikiextractor")
    plain = work / "dump.xml"  # decompression is not measured
    with plain.open("wb") as file:
        file.writelines(read_blocks(args.dump))
    megabytes = plain.stat().st_size / 1e6

    def ours() -> float:
        shutil.rmtree(work / "ours", ignore_errors=True)
        command = [sys.executable, "-m", "electrify", "corpus", "wikipedia", plain]
        command += ["--workers", "1", "--out", work / "ours"]
        subprocess.run(command, check=True, capture_output=True)
        return megabytes

    def theirs() -> float:
        shutil.rmtree(work / "theirs", ignore_errors=True)
        options = ["--processes", "1", "--json", "--quiet", "--no-templates"]
        command = [rival, *options, "-o", work / "theirs", plain]
        subprocess.run(command, check=True, capture_output=True)
        return megabytes

    rates = measure({"electrify": ours} | ({"wikiextractor": theirs} if rival else {}), args.rounds)
    documents = {d.id: d.text for d in read_parquet(row_groups(work / "ours"))}
    lines = [line for text in documents.values() for line in text.split("\n")]
    residue = sum(bool(RESIDUE.search(line)) for line in lines)
    print(f"{len(documents):,} documents, {len(lines):,} lines")
    print(f"markup residue in {residue:,} lines: {1000 * residue / len(lines):.2f} per 1,000")
    if rival:
        other = _extracted(work / "theirs")
        if not other:
            print("wikiextractor found no page in this dump")
            del rates["wikiextractor"]
        shared = documents.keys() & other.keys()
        our_words = sum(len(WORD.findall(documents[page])) for page in shared)
        their_words = sum(len(WORD.findall(other[page])) for page in shared)
        print(f"words on {len(shared):,} shared pages: ours {our_words:,}, theirs {their_words:,}")
    report(rates, "electrify", "MB/s, one process")
    print(where())


def _extracted(folder: Path) -> dict[str, str]:
    files = (file.read_text("utf-8") for file in folder.rglob("wiki_*"))
    lines = (line for text in files for line in text.split("\n"))
    pages = (json.loads(line) for line in lines if line)
    return {page["id"]: re.sub(r"formula_\d+|codice_\d+", "", page["text"]) for page in pages}


if __name__ == "__main__":
    main()
