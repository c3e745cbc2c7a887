"""Open what others saved (configurations, tokenizers, weights) and never run their code.

Every command opens models here. A folder or a Hub repository can name Python files in its
`auto_map`, name an attention kernel to download, or hold weights as pickles: none of it is run or
asked about. Whatever the libraries raise on a damaged or hostile folder is the user's to know, not
a traceback: only their calls are wrapped, so faults of our own stay visible.
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

from electrify.errors import UserError

logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # of loading and saving

ALLOW_PICKLES = "ELECTRIFY_ALLOW_PICKLES"
"""Set to 1, this environment variable lets weights be pickles; torch loads tensors alone."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
GIVE_A_MODEL = "give a folder that save_pretrained wrote, or a Hub name; weights as safetensors"


def open_config(source: str) -> Any:
    """Return the configuration of a folder or of a model on the Hub."""
    with _library_errors(f"transformers cannot load this model: {source}", source), _silence():
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    if getattr(config, "quantization_config", None) is not None:
        raise UserError(
            f"the weights of {source} are quantised",
            got="quantization_config in config.json",
            fix="give the model from before it was quantised",
        )
    if "/" in str(config._attn_implementation):
        raise UserError(
            f"{source} wants a kernel from the Hub, which would be code to run",
            got=f"attn_implementation {config._attn_implementation}",
            fix="remove attn_implementation from its config.json",
        )
    return config


def open_tokenizer(source: str) -> Any:
    """Return the tokenizer of a folder or of a model on the Hub."""
    with _library_errors(f"transformers cannot load the tokenizer of {source}", source), _silence():
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False)


def open_model(kind: Any, source: str, **fields: Any) -> tuple[Any, dict[str, Any]]:
    """Return a network in float32, and which weights it did not find: the caller judges that."""
    open_config(source)  # refuses what no class should load
    allowed = os.environ.get(ALLOW_PICKLES) == "1"
    if not allowed:
        _refuse_pickles(source)
    with _library_errors(f"the weights of {source} cannot be loaded", source), _silence():
        network, loaded = kind.from_pretrained(
            source,
            dtype=torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
            use_safetensors=None if allowed else True,
            **fields,
        )
    return network, loaded


def open_backbone(source: str) -> Any:
    """Return a network without a head, in float32."""
    return open_model(AutoModel, source)[0]


def _refuse_pickles(source: str) -> None:
    """Say how to convert a folder that has weights as pickles alone."""
    folder = Path(source)
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    pickles = [name for name in names if name.endswith(PICKLES) and name != "training_args.bin"]
    if pickles and not any(name.endswith(".safetensors") for name in names):
        raise UserError(
            f"the weights of {source} are a pickle, which can run code when it is loaded",
            got=", ".join(pickles[:3]),
            fix=f"if you trust them, convert them in Python: `{_conversion(folder)}`; "
            f"or set {ALLOW_PICKLES}=1",
        )


def _conversion(folder: Path) -> str:
    """Return the Python that writes a folder again with safetensors, its head and its tokenizer."""
    named = getattr(open_config(str(folder)), "architectures", None)
    known = [name for name in named if name in dir(transformers)] if isinstance(named, list) else []
    classes = ((known or ["AutoModel"])[0], "AutoTokenizer")
    return "; ".join(
        [
            f"from transformers import {', '.join(classes)}",
            *(f"{name}.from_pretrained('OLD').save_pretrained('NEW')" for name in classes),
        ]
    )


@contextmanager
def _library_errors(what: str, source: str) -> Iterator[None]:
    """Turn whatever transformers, tokenizers and safetensors raise into a UserError."""
    missing = not Path(source).exists()
    if missing and not HUB_NAME.fullmatch(source):
        raise UserError(f"there is no folder {source}", got=source, fix=GIVE_A_MODEL)
    try:
        yield
    except BaseException as error:  # panics of Rust code are no Exceptions
        if isinstance(error, KeyboardInterrupt | SystemExit | UserError):
            raise
        if missing and "couldn't connect" in str(error):
            raise UserError(
                f"there is no folder {source} here, and the Hugging Face Hub cannot be reached",
                got=source,
                fix="give a folder that exists, or a Hub name while you are online",
            ) from error
        runs_code = "trust_remote_code" in str(error)
        raise UserError(
            what,
            got="code of its own (auto_map), which electrify never runs"
            if runs_code
            else _in_a_line(error),
            fix="give a model whose architecture is part of transformers"
            if runs_code
            else GIVE_A_MODEL,
        ) from error


def _in_a_line(error: BaseException) -> str:
    """Return an error's message in one line, with its type where the message is a fragment.

    >>> _in_a_line(KeyError("added_tokens"))
    "KeyError: 'added_tokens'"
    """
    said = " ".join(str(error).split())[:300]
    usual = isinstance(error, OSError | ValueError | RuntimeError) and said
    return said if usual else f"{type(error).__name__}: {said}".rstrip(": ")


@contextmanager
def _silence() -> Iterator[None]:
    """Inside, transformers and the Hub's client log nothing: what matters becomes an error here."""
    loggers = [getLogger(name) for name in ("transformers", "huggingface_hub")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
