"""Load and save tokenizers: a vocab.txt, a Hugging Face folder, a tokenizer.json or a Hub name.

Only the `tokenizers` library is used, so that preparing data never imports torch. Two settings make
a tokenizer from a vocab.txt match the official one where the Hugging Face default does not: words
of up to 200 characters are tokenized (not 100), and special tokens that are written in the text,
such as "[MASK]", are ordinary text.
"""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from electrify.errors import DamagedError, UserError, visible
from electrify.storage.build import committed_file
from electrify.storage.commit import checked_manifest, parse_json, verify

LONGEST_WORD = 200  # google-research/electra model/tokenization.py: WordpieceTokenizer
SPECIAL_ROLES = ("pad", "unk", "cls", "sep", "mask")
OUR_NAMES = {role: f"[{role.upper()}]" for role in SPECIAL_ROLES}
# The names to look for if tokenizer_config.json does not give them.
USUAL_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


@dataclass(frozen=True)
class SpecialIds:
    """The ids of the special tokens of a tokenizer."""

    pad: int
    cls: int
    sep: int
    mask: int
    unk: int | None  # byte-level tokenizers may have none


@dataclass(frozen=True)
class LoadedTokenizer:
    """A tokenizer, its special tokens by role, and a hash of everything that decides its ids."""

    backend: Tokenizer
    names: Mapping[str, str]
    special: SpecialIds
    fingerprint: str

    @cached_property
    def vocab_size(self) -> int:
        """The largest id + 1, including added tokens; some smaller ids may be unused."""
        return max(self.backend.get_vocab(with_added_tokens=True).values()) + 1


def load_tokenizer(source: str | Path) -> LoadedTokenizer:
    """Load a vocab.txt, a tokenizer.json, a folder with either, or a Hub name."""
    path = Path(source)
    if path.is_dir():
        return _from_folder(path)
    if path.is_file():
        if path.suffix == ".json":
            return _from_json(path, {})
        return from_vocabulary(_read_vocabulary(path))
    return _from_hub(str(source))


def description(tokenizer: LoadedTokenizer) -> str:
    """Return one line with the vocabulary size, the treatment of case and accents, and names."""
    normalizer = json.loads(tokenizer.backend.to_str())["normalizer"] or {}
    properties = [f"{tokenizer.vocab_size:,} tokens"]
    if normalizer.get("type") == "BertNormalizer":
        strips = normalizer["strip_accents"]
        strips = normalizer["lowercase"] if strips is None else strips
        properties.append("lower case" if normalizer["lowercase"] else "cased")
        properties.append("accents stripped" if strips else "accents kept")
    return visible(", ".join([*properties, " ".join(tokenizer.names.values())]))


def save_tokenizer(
    tokenizer: LoadedTokenizer,
    folder: Path,
    longest: int = 512,
    within: Path | None = None,
    token_types: bool = True,
) -> list[dict[str, Any]]:
    """Write a folder that `AutoTokenizer.from_pretrained` loads and that gives the same ids.

    `token_types` is whether models get token type ids. Returns the manifest entries of the two
    files, with names relative to `within`.
    """
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "model_input_names": inputs if token_types else [inputs[0], inputs[2]],
        **{f"{role}_token": name for role, name in tokenizer.names.items()},
    }
    contents = {
        "tokenizer.json": tokenizer.backend.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(settings, indent=1, ensure_ascii=False) + "\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    root = within or folder
    entries = []
    for name, content in contents.items():
        path = (folder / name).relative_to(root).as_posix()
        write = partial(Path.write_text, data=content, encoding="utf-8")
        entries.append(committed_file(root, path, write))
    return entries


def from_vocabulary(
    words: Iterable[str], lowercase: bool | None = None, strip_accents: bool | None = None
) -> LoadedTokenizer:
    """Return BERT's WordPiece tokenizer; case and accents are inferred from the words if None."""
    vocabulary = {word: index for index, word in enumerate(words)}
    plain = [word for word in vocabulary if not (word.startswith("[") and word.endswith("]"))]
    if lowercase is None:  # not isupper(): letters such as ℝ are upper case without a lower case
        lowercase = not any(word != word.lower() for word in plain)
    if strip_accents is None:
        strip_accents = lowercase and not any(unicodedata.normalize("NFD", w) != w for w in plain)
    limits = {"unk_token": OUR_NAMES["unk"], "max_input_chars_per_word": LONGEST_WORD}
    backend = Tokenizer(models.WordPiece(vocabulary, **limits))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=strip_accents
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return with_special_tokens(backend, OUR_NAMES)


def with_special_tokens(backend: Tokenizer, names: Mapping[str, str]) -> LoadedTokenizer:
    """Check the special tokens of a backend, mark them as special and compute its fingerprint."""
    found = {
        role: names[role]
        for role in SPECIAL_ROLES
        if role in names and backend.token_to_id(names[role]) is not None
    }
    needed = [role for role in SPECIAL_ROLES if role != "unk"]
    if missing := [f"{r} ({names.get(r, 'no name')})" for r in needed if r not in found]:
        raise UserError(
            "the tokenizer lacks special tokens that ELECTRA needs",
            got=f"no {', '.join(missing)} among {backend.get_vocab_size():,} tokens",
            fix="add them to the vocabulary, or train a tokenizer with `electrify tokenizer`",
        )
    backend.add_special_tokens(list(found.values()))
    backend.no_truncation()
    backend.no_padding()
    if backend.post_processor is None:
        cls, sep = found["cls"], found["sep"]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{cls} $A {sep}",
            pair=f"{cls} $A {sep} $B:1 {sep}:1",
            special_tokens=[(name, backend.token_to_id(name)) for name in (cls, sep)],
        )
    backend.encode_special_tokens = True  # "[SEP]" in a text is three words, as in the original
    ids: dict[str, Any] = {role: backend.token_to_id(name) for role, name in found.items()}
    description = backend.to_str()
    _check_ids(backend, json.loads(description)["model"])
    fingerprint = hashlib.sha256(description.encode()).hexdigest()
    return LoadedTokenizer(backend, found, SpecialIds(**{"unk": None, **ids}), fingerprint)


def _check_ids(backend: Tokenizer, model: Mapping[str, Any]) -> None:
    """Raise an error if ids repeat or are mostly unused, or if unknown words have no id."""
    vocabulary = backend.get_vocab(with_added_tokens=True)
    largest, distinct = max(vocabulary.values()), len(set(vocabulary.values()))
    if distinct < len(vocabulary) or largest >= 2 * distinct:
        raise UserError(
            "the ids of the tokenizer must be 0, 1, 2, … without repeats, and half of them used",
            got=f"{len(vocabulary):,} tokens, {distinct:,} ids, the largest is {largest:,}",
            fix="number its tokens from 0, or train a tokenizer with `electrify tokenizer`",
        )
    unknown = model.get("unk_token")
    if model.get("type") in ("WordPiece", "WordLevel") and unknown not in vocabulary:
        raise UserError(
            "the tokenizer has no token for unknown words",
            got=f"no {unknown} among {len(vocabulary):,} tokens",
            fix=f"add {unknown} to the vocabulary, or train a tokenizer with `electrify tokenizer`",
        )


def _from_folder(folder: Path) -> LoadedTokenizer:
    _check_unchanged(folder)
    config = _read_config(folder)
    if (folder / "tokenizer.json").is_file():
        return _from_json(folder / "tokenizer.json", config)
    if (folder / "vocab.txt").is_file():
        return from_vocabulary(
            _read_vocabulary(folder / "vocab.txt"),
            lowercase=_flag(config, "do_lower_case"),
            strip_accents=_flag(config, "strip_accents"),
        )
    raise UserError(
        f"no tokenizer in {folder}",
        got=", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "an empty folder",
        fix="give a folder with tokenizer.json or vocab.txt; convert other formats with "
        "AutoTokenizer.from_pretrained(OLD).save_pretrained(NEW)",
    )


def _flag(config: Mapping[str, Any], name: str) -> bool | None:
    return value if isinstance(value := config.get(name), bool) else None


def _check_unchanged(folder: Path) -> None:
    """Raise an error if the files of an `electrify tokenizer` folder were changed."""
    path = folder / "manifest.json"
    if not path.is_file() or (manifest := checked_manifest(path))["kind"] != "tokenizer":
        return
    if faults := verify(folder, manifest):
        raise DamagedError(
            f"{folder} was changed after it was made",
            got="; ".join(faults),
            fix="restore it or make it again; if you meant to change it, delete manifest.json",
        )


def _from_json(path: Path, config: Mapping[str, Any]) -> LoadedTokenizer:
    try:
        backend = Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in the Rust library is not an Exception
        raise UserError(
            f"{path} is not a tokenizer", got=str(error)[:200], fix="give a tokenizer.json"
        ) from error
    return with_special_tokens(backend, _special_names(backend, config))


def _special_names(backend: Tokenizer, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens by role: those of the configuration, or else the usual ones."""
    names = {}
    for role, usual in USUAL_NAMES.items():
        configured = config.get(f"{role}_token")
        if isinstance(configured, dict):
            configured = configured.get("content")
        if configured and isinstance(configured, str):
            names[role] = configured
        elif known := [name for name in usual if backend.token_to_id(name) is not None]:
            names[role] = known[0]
    return names


def _read_config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            try:
                config |= dict(parse_json((folder / name).read_text(encoding="utf-8")))
            except (ValueError, TypeError, RecursionError) as error:
                raise UserError(
                    f"{folder / name} is not a JSON object", got=str(error), fix="fix the file"
                ) from error
    return config


def _read_vocabulary(path: Path) -> list[str]:
    try:
        words = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not a vocabulary", got=str(error), fix="give UTF-8 text, one word per line"
        ) from error
    words = [word.rstrip("\r") for word in words]
    while words and not words[-1]:
        words.pop()
    repeated, count = Counter(words).most_common(1)[0] if words else ("", 0)
    if count > 1:
        raise UserError(
            f"{path} contains a word twice", got=repr(repeated), fix="remove the repeated line"
        )
    return words


def _from_hub(name: str) -> LoadedTokenizer:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        folder = snapshot_download(name, allow_patterns=["tokenizer*", "vocab.txt", "special_*"])
    except Exception as error:  # offline, unknown name, no permission: all different exceptions
        got = f"no such file or folder, and the Hub replied: {str(error).splitlines()[0]}"
        fix = "check the path or the name; offline, give a local folder or vocab.txt"
        if isinstance(error, HFValidationError):
            got, fix = "neither a file, nor a folder, nor a valid name on the Hub", "check the path"
        raise UserError(f"no tokenizer at {name}", got=got, fix=fix) from error
    return _from_folder(Path(folder))
