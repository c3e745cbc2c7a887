"""Make shards of random tokens, so that the checklist needs neither text nor a network."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from electrify.storage.build import Build, committed_file
from electrify.tokens import store
from electrify.tokens.examples import Example
from electrify.tokens.prepare import COUNTED, SHARD_FILES
from electrify.tokens.tokenizer import OUR_NAMES, LoadedTokenizer, from_vocabulary, save_tokenizer

EXAMPLES = {"train": 512, "validation": 64, "test": 64}


def write_random_shards(out: Path, vocab_size: int, length: int) -> Path:
    """Write shards of random examples, all of the full length so that no batch has padding."""
    words = (f"w{number}" for number in range(vocab_size - len(OUR_NAMES)))
    loaded = from_vocabulary([*OUR_NAMES.values(), *words])
    identity = {
        "settings": {"length": length, "layout": "electra"},
        "tokenizer": {"vocab_size": loaded.vocab_size, "sha256": loaded.fingerprint},
        "inputs": [],
    }
    with Build(out, "shards", identity, files=SHARD_FILES) as build:
        files = save_tokenizer(loaded, out / "tokenizer", length, within=out)
        counts: dict[str, dict[str, Any]] = {}
        for seed, (split, number) in enumerate(EXAMPLES.items()):
            arrays = store.to_arrays(_examples(loaded, length, number, seed), vocab_size)
            counts[split] = {
                **dict.fromkeys(COUNTED, 0),
                "examples": number,
                "tokens": number * length,
                "lengths": [0] * length + [number],
            }
            write = partial(store.write_shard, arrays=arrays)
            entry = committed_file(out, f"{split}-00000.safetensors", write)
            files.append({**entry, "split": split, **store.shard_entry(arrays)})
        build.finish({"splits": counts, "files": files})
    return out


def _examples(loaded: LoadedTokenizer, length: int, number: int, seed: int) -> list[Example]:
    """Return examples of two segments, in which low ids are more frequent."""
    special, rng, half = loaded.special, np.random.default_rng(seed), length // 2
    random = (
        len(OUR_NAMES) + (loaded.vocab_size - len(OUR_NAMES)) * rng.random((number, length)) ** 3
    )
    ids = random.astype(np.int64)
    ids[:, 0], ids[:, half], ids[:, -1] = special.cls, special.sep, special.sep
    return [Example(row, [half + 1]) for row in ids.tolist()]
