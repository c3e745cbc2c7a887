"""The folder of a run: what it is, what it was made from, and where its parts lie.

RUN/recipe.toml        everything the run does, as `electrify pretrain RUN/recipe.toml` takes it
RUN/run.json           what it was begun with: recipe, data, versions, machine
RUN/tokenizer/         the tokenizer of the shards
RUN/networks/          the networks' configurations
RUN/checkpoints/       see checkpoint.py
RUN/metrics.jsonl      see journal.py
RUN/verified.json      which shards were verified, see verified.py
"""

import hashlib
import platform
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from electrify import config
from electrify.errors import UserError
from electrify.objectives.objective import objective_class
from electrify.recipes.schema import Recipe
from electrify.storage.build import versions
from electrify.storage.commit import (
    TABLE,
    TEXT,
    checked_json,
    committed,
    flat,
    json_bytes,
    read_manifest,
    sha256_of,
    write_json,
)
from electrify.storage.folder import Claim, refuse_other
from electrify.tokens import tokenizer as tokenizers
from electrify.tokens.tokenizer import LoadedTokenizer
from electrify.training.checkpoint import stored
from electrify.training.precision import Asked, Choice, MatmulPrecision, choose_precision

WRITTEN = ("run.json", "recipe.toml", "metrics.jsonl", "timing.jsonl", "verified.json")
# What may change between two starts of a run: none of it moves a weight.
FREE = {"log_every", "eval_every", "eval_batches", "save_every", "keep_last", "keep_percent"}


_ABOUT = {
    **dict.fromkeys(("identity", "identity.recipe", "identity.data", "made_with"), TABLE),
    **dict.fromkeys(("shards", "shards.identity", "shards.splits"), TABLE),
    "data": TEXT,
}


class RunFolder(NamedTuple):
    """A run on disk."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Where its checkpoints are."""
        return self.path / "checkpoints"

    @property
    def tokenizer(self) -> Path:
        """Where its tokenizer is."""
        return self.path / "tokenizer"

    @property
    def verified(self) -> Path:
        """Where it keeps which shards were verified."""
        return self.path / "verified.json"

    @property
    def about(self) -> dict[str, Any]:
        """What it was begun with."""
        file = self.path / "run.json"
        if not file.is_file():
            raise UserError(
                f"{self.path} is not a run",
                got="a folder without run.json" if self.path.is_dir() else "no such folder",
                fix="give the --out of an `electrify pretrain`",
            )
        return checked_json(file, _ABOUT)

    @property
    def recipe(self) -> Recipe:
        """Its recipe."""
        return config.fill(Recipe, self.about["identity"]["recipe"], "run.json", None)

    def choice(self, asked: Asked, device: str) -> Choice:
        """Return what to compute in: what a run started with, or else the faster on this machine.

        Runs made before Muon had a choice computed it in bfloat16.
        """
        if not self.started:
            return choose_precision(asked, device)
        kept = self.recipe.run.precision if asked == "auto" else asked
        return choose_precision(kept, device)._replace(muon=self.about.get("muon", "bf16"))

    def with_own_sizes(self, recipe: Recipe) -> Recipe:
        """The recipe, with the sizes of released networks as the run keeps them.

        Where they came from is not needed again once there are checkpoints, which have the weights.
        """
        if not stored(self.checkpoints):
            return recipe
        for role, spec in objective_class(recipe.objective.kind).roles.items():
            part, kept = getattr(recipe, spec.section), self.path / "networks" / role
            if part.init_from and kept.is_dir():
                recipe = replace(recipe, **{spec.section: replace(part, init_from=str(kept))})
        return recipe

    @property
    def fingerprint(self) -> str:
        """What tells its checkpoints from those of other runs."""
        identity = {
            name: value
            for name, value in flat(self.about["identity"]).items()
            if name.rpartition(".")[2] not in FREE
        }
        return hashlib.sha256(json_bytes(identity)).hexdigest()[:16]

    @property
    def started(self) -> bool:
        """Whether there is a run already."""
        return (self.path / "run.json").is_file()

    def start_or_resume(
        self,
        recipe: Recipe,
        data: Path,
        tokenizer: LoadedTokenizer,
        networks: Mapping[str, Any],
        budget: str,
        muon: MatmulPrecision,
        warn: Callable[[str], None],
    ) -> None:
        """Write down what the run is, or check that it is the same as before."""
        manifest = read_manifest(data, "shards")
        fingerprint = {"manifest_sha256": sha256_of(data / "manifest.json")}
        identity = {"recipe": config.to_dict(recipe), "data": fingerprint, "budget": budget}
        if self.started:
            # Through the recipe, so that settings that were invented since have their defaults.
            before = {**self.about["identity"], "recipe": config.to_dict(self.recipe)}
            others = "another recipe or other data"
            refuse_other(self.path, before, identity, others, "was started", free=FREE)
            for name, here in made_with().items():
                there = self.about["made_with"].get(name)
                if there != here:
                    warn(f"started with {name} {there}, here is {here}: bits may differ")
        else:
            tokenizers.save_tokenizer(tokenizer, self.tokenizer, recipe.run.length)
            for role, network in networks.items():
                network.config.save_pretrained(self.path / "networks" / role)
            shards = {name: manifest[name] for name in ("identity", "splits")}
            about = {"kind": "run", "identity": identity, "data": str(data), "shards": shards}
            write_json(self.path / "run.json", {**about, "muon": muon, **environment()})
        with committed(self.path / "recipe.toml") as temporary:
            temporary.write_text(config.to_toml(recipe), encoding="utf-8")

    def lock(self) -> Claim:
        """Make the folder and keep other processes out of it.

        If no run is started inside, what was made is removed: a refused command leaves nothing.
        """
        return Claim(
            self.path,
            identity="run.json",
            lock="lock",
            doing=f"training in {self.path}",
            written=WRITTEN,
            early=("tokenizer", "networks"),
            strange="files that are no run",
        )


def made_with() -> dict[str, str]:
    """The versions of what computes."""
    import torch

    return {
        **versions(),
        "torch": str(torch.__version__),  # with its build, such as +cpu
        "transformers": version("transformers"),
    }


def environment() -> dict[str, Any]:
    """Versions, machine and the state of the code, for whoever reads the run later."""
    import torch

    return {
        "made_with": made_with(),
        "machine": {
            "platform": platform.platform(),
            "processors": torch.get_num_threads(),
            "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
        "git": _git(),
    }


def _git() -> dict[str, Any]:
    """The commit of the folder one works in, if it is under git."""
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=True
        )
        changed = subprocess.run(
            ["git", "status", "--porcelain", "-uno"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": commit.stdout.strip(), "changed": bool(changed.stdout.strip())}
