"""Pre-train text encoders the way ELECTRA does, from raw text to a GLUE table.

The commands are functions, such as
`electrify.pretrain(recipe="tiny", data="shards", out="run", steps=200)`. Modules are imported when
they are first used, so `import electrify` takes milliseconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from electrify.api import (
        adapt,
        blimp,
        classify,
        corpus,
        doctor,
        embed,
        export,
        finetune,
        glue,
        plan,
        predict,
        prepare,
        pretrain,
        report,
        squad,
        suite,
        tokenizer,
        train,
    )
    from electrify.objectives.collator import MaskingCollator, WithDictOutput
    from electrify.objectives.mlm import MaskedLanguageModel
    from electrify.objectives.rtd import ReplacedTokenDetection

__version__ = "0.1.0"

__all__ = [
    "MaskedLanguageModel",
    "MaskingCollator",
    "ReplacedTokenDetection",
    "WithDictOutput",
    "adapt",
    "blimp",
    "classify",
    "corpus",
    "doctor",
    "embed",
    "export",
    "finetune",
    "glue",
    "plan",
    "predict",
    "prepare",
    "pretrain",
    "report",
    "squad",
    "suite",
    "tokenizer",
    "train",
]

_CLASSES = {
    "MaskedLanguageModel": "electrify.objectives.mlm",
    "MaskingCollator": "electrify.objectives.collator",
    "ReplacedTokenDetection": "electrify.objectives.rtd",
    "WithDictOutput": "electrify.objectives.collator",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'electrify' has no attribute {name!r}")
    return getattr(import_module(_CLASSES.get(name, "electrify.api")), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
