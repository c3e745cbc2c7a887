"""Read and write the files by which sentence-transformers knows how to make sentence vectors.

FOLDER/modules.json                      the modules: encoder, pooling and, maybe, normalization
FOLDER/1_Pooling/config.json             how token vectors are pooled
FOLDER/sentence_bert_config.json         the maximum length, and whether texts are lowercased
FOLDER/config_sentence_transformers.json prompts: text that is put before every text

The package itself is not needed: a folder of an encoder, pooling and normalization is read here. A
folder with any other module is refused, because its vectors would not be those of the package.
"""

from pathlib import Path
from typing import Any, NamedTuple

from electrify.errors import UserError
from electrify.models.pooling import POOLINGS, Pooling
from electrify.models.pretrained import find_file
from electrify.storage.commit import parse_json, write_json

MODULES = "modules.json"
UNLIMITED = 1 << 40
"""The length in folders that name none: what the tokenizer or else the encoder accepts."""
OLD_POOLING_KEY = "pooling_mode_{}_token{}"
"""How sentence-transformers before 6 names kinds of pooling; later versions read it too."""


class SentenceModel(NamedTuple):
    """How an encoder makes sentence vectors."""

    source: str
    """The folder or Hub name of the encoder."""
    pooling: Pooling = "mean"
    normalize: bool = False
    """Whether vectors are scaled to length 1."""
    length: int = 0
    """Maximum tokens per text; 0: what the tokenizer says, or 512; UNLIMITED: or as many as fit."""
    lowercase: bool = False
    prompt: str = ""
    """Put before every text."""


def read_sentence_folder(source: str) -> SentenceModel | None:
    """Return what a sentence-transformers folder or Hub model says; None if it is not one."""
    path = find_file(source, MODULES)
    if path is None:
        return None
    modules = _read(path, list)
    kinds = [str(_entry(path, module).get("type", "")).rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise _unreadable(source, f"modules: {', '.join(kinds) or 'none'}")
    inside, pooling_folder = (str(module.get("path", "")) for module in modules[:2])
    for part in (inside, pooling_folder):
        if ".." in Path(part).parts or Path(part).is_absolute():
            raise _unreadable(source, f"a module outside the folder: {part}")
    if inside and not Path(source).is_dir():
        raise _unreadable(source, f"an encoder in the folder {inside} of a Hub model")
    encoder = str(Path(source) / inside) if inside else source
    options = _settings(encoder, "sentence_bert_config.json")
    prompts = _settings(source, "config_sentence_transformers.json")
    if options.get("transformer_task", "feature-extraction") != "feature-extraction":
        raise _unreadable(source, f"transformer_task: {options['transformer_task']}")
    name = prompts.get("default_prompt_name")
    prompt = str((prompts.get("prompts") or {}).get(name, "")) if name else ""
    config = _settings(source, f"{pooling_folder}/config.json")
    if prompt and not config.get("include_prompt", True):
        raise _unreadable(source, "pooling without the tokens of the prompt")
    return SentenceModel(
        encoder,
        _pooling(source, config),
        len(kinds) == 3,
        int(options.get("max_seq_length") or UNLIMITED),
        bool(options.get("do_lower_case", False)),
        prompt,
    )


def _pooling(source: str, config: dict[str, Any]) -> Pooling:
    """Return the only kind of pooling that a configuration of any version names."""
    old = [
        name.removeprefix("pooling_mode_").removesuffix("s").removesuffix("_token")
        for name, value in config.items()
        if name.startswith("pooling_mode_") and value
    ]
    found = config.get("pooling_mode") or (old or ["mean"])
    names = [found] if isinstance(found, str) else list(found)
    for name in POOLINGS:
        if names == [name]:
            return name  # type: ignore[return-value]
    raise _unreadable(source, f"pooling: {', '.join(map(str, names))}")


def _settings(source: str, name: str) -> dict[str, Any]:
    path = find_file(source, name)
    return {} if path is None else _read(path, dict)


def _read(path: Path, kind: type[Any]) -> Any:
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _unreadable(str(path), str(error)) from error
    if not isinstance(content, kind):
        raise _unreadable(str(path), f"{type(content).__name__} instead of {kind.__name__}")
    return content


def _entry(path: Path, module: Any) -> dict[str, Any]:
    if not isinstance(module, dict):
        raise _unreadable(str(path), f"{module!r:.60} instead of a module")
    return module


def _unreadable(source: str, got: str) -> UserError:
    return UserError(
        f"{source}: not an encoder with mean, cls or max pooling",
        got=got,
        fix="use SentenceTransformer(folder).encode for it, or another model",
    )


def write_sentence_folder(folder: Path, model: SentenceModel, width: int) -> None:
    """Write the files that make the folder of an encoder one of sentence-transformers."""
    kinds = ["Transformer", "Pooling", *["Normalize"] * model.normalize]
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    keys = {name: OLD_POOLING_KEY.format(name, "" if name == "cls" else "s") for name in POOLINGS}
    pooling = {key: name == model.pooling for name, key in keys.items()}
    contents: dict[str, Any] = {
        MODULES: modules,
        "1_Pooling/config.json": {"word_embedding_dimension": width, **pooling},
        "sentence_bert_config.json": {
            "max_seq_length": model.length,
            "do_lower_case": model.lowercase,
        },
        "config_sentence_transformers.json": {
            "prompts": {"default": model.prompt} if model.prompt else {},
            "default_prompt_name": "default" if model.prompt else None,
            "similarity_fn_name": "cosine",
        },
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_json(folder / name, content)
