"""Make the model of `electrify inspect --demo` from an export: `python -m docs.demo EXPORT`.

The export must come from text whose licences allow it; the card in src/electrify/demo says which.
"""

import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

from electrify.reports.inspection import DEMO

FILES = {
    "discriminator": ("config.json", "tokenizer.json", "tokenizer_config.json"),
    "generator": ("config.json",),
}


def main(export: Path) -> None:
    """Copy discriminator and generator, with weights in float16, which halves their size."""
    for role, names in FILES.items():
        folder = DEMO / role
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in names:
            shutil.copy(export / role / name, folder / name)
        weights = load_file(export / role / "model.safetensors")
        halved = {name: tensor.half() for name, tensor in weights.items()}
        save_file(halved, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
