"""The folder of a run: its settings, what it was started with, and the paths of its files.

RUN/recipe.toml        the complete recipe, accepted by `electrify pretrain RUN/recipe.toml`
RUN/run.json           what the run was started with: recipe, data, versions, machine; where its
                       data is, the options of the latest command, extensions of the run
RUN/tokenizer/         the tokenizer of the shards
RUN/networks/          the networks' configurations
RUN/checkpoints/       see checkpoint.py
RUN/metrics.jsonl      see journal.py
RUN/verified.json      which shards have been verified, see storage/verified.py
"""

import errno
import hashlib
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from electrify import config
from electrify.errors import DamagedError, UserError
from electrify.objectives.objective import objective_class
from electrify.recipes.schema import Recipe
from electrify.storage.build import versions
from electrify.storage.commit import (
    FILES_IF_ANY,
    TABLE,
    TABLE_IF_ANY,
    TEXT,
    checked_json,
    committed,
    differing,
    flat,
    json_bytes,
    read_manifest,
    sha256_of,
    verify,
    write_json,
)
from electrify.storage.folder import Claim, refuse_other
from electrify.tokens import tokenizer as tokenizers
from electrify.tokens.tokenizer import LoadedTokenizer
from electrify.training.checkpoint import Stored, stored
from electrify.training.extension import Extension, begun_before, extensions_of, planned_ends
from electrify.training.git import git_commit
from electrify.training.options import Pretrain, repeated_options
from electrify.training.precision import Asked, Choice, MatmulPrecision, choose_precision
from electrify.training.remote import mask

WRITTEN = ("run.json", "recipe.toml", "metrics.jsonl", "timing.jsonl", "verified.json")
# Fields that may change when a run is resumed, because they do not affect the weights.
FREE = {"log_every", "eval_every", "eval_batches", "save_every", "keep_last", "keep_percent"}


_ABOUT = {
    **dict.fromkeys(("identity", "identity.recipe", "identity.data", "made_with"), TABLE),
    **dict.fromkeys(("shards", "shards.identity", "shards.identity.tokenizer"), TABLE),
    "shards.splits": TABLE,
    "identity.data.manifest_sha256": TEXT,
    "data": TEXT,
    "options": TABLE_IF_ANY,
    "tokenizer": FILES_IF_ANY,
}


class RunFolder(NamedTuple):
    """A run on disk."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Return the folder of its checkpoints."""
        return self.path / "checkpoints"

    @property
    def tokenizer(self) -> Path:
        """Return the folder of its tokenizer."""
        return self.path / "tokenizer"

    @property
    def verified(self) -> Path:
        """Return the file that lists the verified shards."""
        return self.path / "verified.json"

    @property
    def about(self) -> dict[str, Any]:
        """Return what the run was started with."""
        file = self.path / "run.json"
        if not file.is_file():
            raise UserError(
                f"{self.path} is not a run",
                got="a folder without run.json" if self.path.is_dir() else "no such folder",
                fix="give the --out folder of `electrify pretrain`",
            )
        return checked_json(file, _ABOUT)

    def saved(self) -> list[Stored]:
        """Return the checkpoints of the run, newest first, without verifying them."""
        return stored(self.checkpoints, self.fingerprints)

    def load_tokenizer(self) -> LoadedTokenizer:
        """Load the tokenizer; it is an error if the run was started with another one."""
        about = self.about
        found = verify(self.path, {"files": about.get("tokenizer", [])})
        if not found:
            loaded = tokenizers.load_tokenizer(self.tokenizer)
            expected = about["shards"]["identity"]["tokenizer"].get("sha256")
            # Older runs have no hashes of the files, only this one, which depends on the version.
            same_version = about["made_with"].get("tokenizers") == version("tokenizers")
            if "tokenizer" in about or not same_version or loaded.fingerprint == expected:
                return loaded
            found = [f"SHA-256 is {loaded.fingerprint}, should be {expected}"]
        raise DamagedError(
            f"{self.tokenizer} is not the tokenizer that the run was started with",
            got="; ".join(found),
            fix=f"restore it from {Path(about['data']) / 'tokenizer'}",
        )

    def check_unmoved(self, fingerprint: str) -> None:
        """Raise an error if this is no longer the folder of the run with this fingerprint."""
        try:
            same = self.started and self.fingerprints(0) == fingerprint
        except UserError:  # run.json vanished meanwhile, or is damaged
            same = False
        if not same:
            what = "the folder of the run was moved, removed or replaced; move it back"
            raise FileNotFoundError(errno.ENOENT, what, str(self.path))

    @property
    def recipe(self) -> Recipe:
        """Return the recipe that the run was started with."""
        return config.fill(Recipe, self.about["identity"]["recipe"], "run.json", None)

    def choice(self, asked: Asked, device: str) -> Choice:
        """Return the precision that the run was started with, or choose one for a new run.

        Runs from before Muon's precision was recorded used bfloat16 for it.
        """
        if not self.started:
            return choose_precision(asked, device)
        precision = self.recipe.run.precision if asked == "auto" else asked
        return choose_precision(precision, device)._replace(muon=self.about.get("muon", "bf16"))

    def with_own_sizes(self, recipe: Recipe) -> Recipe:
        """Return the recipe with `init_from` pointing to the configurations stored in the run.

        Once there are checkpoints, which have the weights, the original models are not needed.
        """
        if not stored(self.checkpoints):
            return recipe
        # A network without weights of its own may have been made from the other's.
        released = recipe.discriminator.init_from or recipe.generator.init_from
        for role, spec in objective_class(recipe.objective.kind).roles.items():
            section, config_folder = getattr(recipe, spec.section), self.path / "networks" / role
            if released and config_folder.is_dir():
                section = replace(section, init_from=str(config_folder))
                recipe = replace(recipe, **{spec.section: section})
        return recipe

    @property
    def extensions(self) -> list[Extension]:
        """Return the extensions of the run beyond the steps of its recipe."""
        return extensions_of(self.about, self.path / "run.json")

    def extend(self, extension: Extension) -> None:
        """Record an extension, before its first step is trained."""
        extensions = [asdict(one) for one in (*self.extensions, extension)]
        write_json(self.path / "run.json", {**self.about, "extensions": extensions})

    @property
    def steps(self) -> int:
        """Return the planned number of steps, including extensions."""
        return planned_ends(self.recipe, self.extensions)[-1]

    @property
    def fingerprints(self) -> Callable[[int], str]:
        """Return a function from the step of a checkpoint to a hash of the run that it belongs to.

        A checkpoint in an extension also belongs to that extension.
        """
        extensions = self.extensions
        identity = {
            name: value
            for name, value in flat(self.about["identity"]).items()
            if name.rpartition(".")[2] not in FREE
        }

        def fingerprint_at(step: int) -> str:
            begun = [[e.start, e.end, e.schedule] for e in begun_before(extensions, step)]
            content = {**identity, "extensions": begun} if begun else identity
            return hashlib.sha256(json_bytes(content)).hexdigest()[:16]

        return fingerprint_at

    @property
    def shards(self) -> Path:
        """Return the shards of the run: relative to it, where they were, or next to it."""
        about, run = self.about, self.path.absolute()
        expected, recorded = about["identity"]["data"]["manifest_sha256"], Path(about["data"])
        relative = str(about.get("data_from_run", f"../{recorded.name}"))
        candidates = [  # shards that were moved or copied with the run come first
            Path(os.path.normpath(run / relative)),
            Path(str(about.get("data_absolute", recorded))),
            recorded,
            run.parent / recorded.name,
        ]
        looked = []
        for folder in dict.fromkeys(candidates):
            manifest = folder / "manifest.json"
            if not manifest.is_file():
                looked.append(f"{folder}: no shards")
            elif sha256_of(manifest) != expected:
                looked.append(f"{folder}: other shards")
            else:
                return folder
        raise UserError(
            f"the shards of {self.path} were not found",
            got="\n       ".join(looked),
            fix="put them next to the run, or, to resume it, name their folder: --data DIR",
        )

    @property
    def started(self) -> bool:
        """Return whether a run has been started in this folder."""
        return (self.path / "run.json").is_file()

    def start_or_resume(
        self,
        settings: Pretrain,
        recipe: Recipe,
        tokenizer: LoadedTokenizer,
        networks: Mapping[str, Any],
        muon: MatmulPrecision,
        warn: Callable[[str], None],
    ) -> None:
        """Record the settings of a new run, or check that a resumed one has the same settings."""
        data = settings.data
        manifest = read_manifest(data, "shards")
        fingerprint = {"manifest_sha256": sha256_of(data / "manifest.json")}
        identity = {
            "recipe": config.to_dict(recipe),
            "data": fingerprint,
            "budget": settings.budget,
        }
        if settings.general is not None and settings.general_share:  # else it changes no weight
            general = sha256_of(settings.general / "manifest.json")
            identity["general"] = {"manifest_sha256": general, "share": settings.general_share}
        latest = {
            "data_absolute": str(data.absolute()),
            "data_from_run": os.path.relpath(data, self.path),
            "options": without_secrets(repeated_options(settings)),
        }
        if self.started:
            # Through the recipe, so that settings added since then have their defaults.
            before = {**self.about["identity"], "recipe": config.to_dict(self.recipe)}
            others = "a different recipe or different data"
            _refuse_longer(self.path, before, identity)
            refuse_other(self.path, before, identity, others, "was started", free=FREE)
            for name, version_now in made_with().items():
                version_then = self.about["made_with"].get(name)
                if version_then != version_now:
                    warn(
                        f"this run was started with {name} {version_then} and is resumed with "
                        f"{version_now}: results may not be bit-identical"
                    )
            if (about := self.about) != {**about, **latest}:
                write_json(self.path / "run.json", {**about, **latest})
        else:
            saved = tokenizers.save_tokenizer(
                tokenizer, self.tokenizer, recipe.run.length, within=self.path
            )
            for role, network in networks.items():
                network.config.save_pretrained(self.path / "networks" / role)
            shards = {name: manifest[name] for name in ("identity", "splits")}
            about = {"kind": "run", "identity": identity, "data": str(data), **latest}
            about |= {"shards": shards, "tokenizer": saved, "muon": muon, **environment()}
            write_json(self.path / "run.json", about)
        with committed(self.path / "recipe.toml") as temporary:
            temporary.write_text(config.to_toml(recipe), encoding="utf-8")

    def lock(self) -> Claim:
        """Create the folder and lock it against other processes.

        If no run is started in it, the folder is removed again when the lock is released.
        """
        return Claim(
            self.path,
            identity="run.json",
            lock="lock",
            doing=f"training in {self.path}",
            written=WRITTEN,
            early=("tokenizer", "networks"),
            strange="files that do not belong to a run",
        )


def made_with() -> dict[str, str]:
    """Return the versions of Python, torch and the other packages that compute."""
    import torch

    return {
        **versions(),
        "torch": str(torch.__version__),  # including the build, such as +cpu
        "transformers": version("transformers"),
    }


def environment() -> dict[str, Any]:
    """Return versions, machine and git state, for people who read the run later."""
    import torch

    return {
        "made_with": made_with(),
        "machine": {
            "platform": platform.platform(),
            "processors": torch.get_num_threads(),
            "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
        "git": {"commit": commit} if (commit := git_commit(Path.cwd())) else {},
    }


def without_secrets(options: dict[str, Any]) -> dict[str, Any]:
    """Return options without an upload URL that contains a password or a token."""
    url = options["upload"]
    return options if mask(url) == url else {**options, "upload": ""}


def _refuse_longer(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Say how to make a run longer, if that is all that a command wants to change."""
    changed = differing(before, now, FREE)
    if changed and set(changed) <= {"budget", "recipe.run.steps"}:
        steps = [identity["recipe"]["run"]["steps"] for identity in (before, now)]
        budgets = [identity["budget"] or "none" for identity in (before, now)]
        raise UserError(
            f"{path} was started with another length",
            got=f"run.steps {steps[0]:,} before, {steps[1]:,} now; "
            f"budget {budgets[0]} before, {budgets[1]} now",
            fix=f"to train it longer: electrify pretrain --resume {path} --more 1h (or --steps N)",
        )
