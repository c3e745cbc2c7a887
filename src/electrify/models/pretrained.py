"""Load configurations, tokenizers and weights that others saved, without running their code.

Every command loads models here. A folder or Hub repository can name Python files in its `auto_map`,
name an attention kernel to download, or store weights as pickles: none of these is executed, and
the user is not prompted. What the libraries raise on a damaged or malicious folder becomes a
`UserError`; only their calls are wrapped, so that our own bugs stay visible.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from logging import CRITICAL, getLogger
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.utils import logging
from transformers.utils.hub import cached_file

from electrify.config import shown
from electrify.errors import UserError
from electrify.models.limits import check_layers
from electrify.storage.commit import TABLE, checked_json

logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # one per load and save

ALLOW_PICKLES = "ELECTRIFY_ALLOW_PICKLES"
"""Environment variable: 1 allows pickled weights, of which torch loads only the tensors."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
GIVE_A_MODEL = "give a folder written by save_pretrained or a Hub name, with safetensors weights"


def open_config(source: str) -> Any:
    """Load the configuration of a folder or Hub model."""
    with _library_errors(f"transformers cannot load this model: {source}", source):
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        check_layers(config, source)
    if getattr(config, "quantization_config", None) is not None:
        raise UserError(
            f"the weights of {source} are quantised",
            got="quantization_config in config.json",
            fix="give the model as it was before quantisation",
        )
    if "/" in str(config._attn_implementation):
        raise UserError(
            f"{source} asks for a kernel from the Hub, which would run code",
            got=f"attn_implementation {config._attn_implementation}",
            fix="remove attn_implementation from its config.json",
        )
    return config


def find_file(source: str, name: str) -> Path | None:
    """Return the path of a file of a folder or Hub model; None if it has no such file."""
    if Path(source).is_dir():
        path = Path(source) / name
        return path if path.is_file() else None
    with _library_errors(f"{name} of {source} cannot be loaded", source):
        found = cached_file(source, name, _raise_exceptions_for_missing_entries=False)
    return Path(found) if found else None


def open_tokenizer(source: str) -> Any:
    """Load the tokenizer of a folder or Hub model."""
    with _library_errors(f"transformers cannot load the tokenizer of {source}", source):
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False)


def open_model(kind: Any, source: str, **fields: Any) -> tuple[Any, dict[str, Any]]:
    """Load a network in float32; returns transformers' loading info, for the caller to check."""
    config = open_config(source)  # refuses quantised models and kernels
    allowed = os.environ.get(ALLOW_PICKLES) == "1"
    if not allowed:
        _refuse_pickles(source)
    _refuse_outside(source, getattr(config, "transformers_weights", None))
    with _library_errors(f"the weights of {source} cannot be loaded", source):
        loaded: tuple[Any, dict[str, Any]] = kind.from_pretrained(
            source,
            dtype=torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
            use_safetensors=None if allowed else True,
            **fields,
        )
    return loaded


def open_backbone(source: str) -> Any:
    """Load a network in float32 without its head."""
    return open_model(AutoModel, source)[0]


def _refuse_pickles(source: str) -> None:
    """Refuse a folder whose weights are only pickles, and say how to convert them."""
    folder = Path(source)
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    pickles = [name for name in names if name.endswith(PICKLES) and name != "training_args.bin"]
    if pickles and not any(name.endswith(".safetensors") for name in names):
        raise UserError(
            f"the weights of {source} are a pickle, which can run code when loaded",
            got=", ".join(pickles[:3]),
            fix=f"if you trust them, convert them in Python: `{_conversion(folder)}`; "
            f"or set {ALLOW_PICKLES}=1",
        )


def _refuse_outside(source: str, weights: Any) -> None:
    """Refuse a folder if its configuration or an index names weights that are not directly in it.

    `weights` is the file that the configuration names, if any; it may be another index.
    """
    named = [] if weights is None else [("config.json", weights)]
    for path in Path(source).glob("*.index.json"):
        index = checked_json(path, {"weight_map": TABLE})["weight_map"]
        named += [(path.name, name) for name in index.values()]
    for file, name in named:
        if not isinstance(name, str) or Path(name).name != name or name == "..":
            raise UserError(
                f"{source} names weights outside the folder, or in a folder inside it",
                got=f"{file}: {shown(name)}",
                fix=GIVE_A_MODEL,
            )


def _conversion(folder: Path) -> str:
    """Return Python code that saves a folder as safetensors, with its head and tokenizer."""
    named = getattr(open_config(str(folder)), "architectures", None)
    known = [name for name in named if name in dir(transformers)] if isinstance(named, list) else []
    classes = ((known or ["AutoModel"])[0], "AutoTokenizer")
    lines = [f"{name}.from_pretrained('OLD').save_pretrained('NEW')" for name in classes]
    return "; ".join([f"from transformers import {', '.join(classes)}", *lines])


@contextmanager
def _library_errors(what: str, source: str) -> Iterator[None]:
    """Turn whatever transformers, tokenizers and safetensors raise into a UserError.

    Their logs, and those of the Hub's client, are silenced meanwhile.
    """
    missing = not Path(source).exists()
    if missing and not HUB_NAME.fullmatch(source):
        raise UserError(f"there is no folder {source}", got=source, fix=GIVE_A_MODEL)
    loggers = [getLogger(name) for name in ("transformers", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(CRITICAL)
    try:
        yield
    except (KeyboardInterrupt, SystemExit, UserError):
        raise
    except BaseException as error:  # Rust panics are not Exceptions
        got, fix = _one_line(error), GIVE_A_MODEL
        if missing and "couldn't connect" in str(error):
            what = f"there is no folder {source}, and the Hugging Face Hub cannot be reached"
            got, fix = source, "give an existing folder, or go online to use a Hub name"
        elif "trust_remote_code" in str(error):
            got = "a model with its own code (auto_map), which electrify never runs"
            fix = "give a model whose architecture is part of transformers"
        raise UserError(what, got=got, fix=fix) from error
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _one_line(error: BaseException) -> str:
    """Return an error's message on one line, with its type unless it is a usual one.

    >>> _one_line(KeyError("added_tokens"))
    "KeyError: 'added_tokens'"
    """
    message = " ".join(str(error).split())[:300]
    usual = isinstance(error, OSError | ValueError | RuntimeError) and message
    return message if usual else f"{type(error).__name__}: {message}".rstrip(": ")
