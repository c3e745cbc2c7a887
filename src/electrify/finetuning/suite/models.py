"""The models of a suite: their names, their folders, and copies with random weights."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from electrify.errors import UserError
from electrify.finetuning.blimp.model import kind_of, scored_model
from electrify.finetuning.encoder import fingerprint
from electrify.finetuning.glue.command import short_name
from electrify.models.export import encoder_folder
from electrify.models.untrained import write_untrained
from electrify.storage.commit import read_json, write_json
from electrify.storage.folder import refuse_other

RANDOM = "random:"
SOURCE_FILE = "source.json"
"""Of which model a folder has a copy with random weights."""


class SuiteModel(NamedTuple):
    """A model as it was given, and what is loaded for it."""

    name: str
    """Name in tables."""
    given: str
    """The argument without the name: a folder or a Hub name, perhaps after random:."""
    encoder: str
    """What is fine-tuned."""
    scorer: str
    """What scores sentences (BLiMP): the discriminator or the masked LM of an export."""

    @property
    def folder(self) -> str:
        """Return the name of the model's folder."""
        return folder_name(self.name)


def folder_name(name: str) -> str:
    """Return a name without characters that a file name cannot have.

    >>> folder_name("random:google/electra-small")
    'random-google-electra-small'
    """
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "model"


def parse_models(arguments: Sequence[str]) -> list[SuiteModel]:
    """Return the models of a command; their names must differ."""
    if not arguments:
        raise UserError(
            "no model was given", got="no MODEL", fix="electrify suite SUITE.toml MODEL…"
        )
    models: list[SuiteModel] = []
    for argument in arguments:
        model = _parse(argument)
        for other in models:
            if other.folder.lower() == model.folder.lower():
                raise UserError(
                    "two models have the same name",
                    got=f"{model.name}: {other.given} and {model.given}",
                    fix=f"name one of them: other={model.given}",
                )
        models.append(model)
    return models


def _parse(argument: str) -> SuiteModel:
    name, equals, given = argument.partition("=")
    if not equals or Path(argument).exists():
        name, given = "", argument
    source = given.removeprefix(RANDOM)
    if name.startswith(RANDOM):
        raise UserError(
            "the name of a model is before random:",
            got=argument,
            fix=f"write {name.removeprefix(RANDOM)}={RANDOM}{given}",
        )
    if not source or (equals and not name and not Path(argument).exists()):
        fix = "write a folder, random:FOLDER or NAME=FOLDER"
        raise UserError("a MODEL is incomplete", got=repr(argument), fix=fix)
    folder = Path(source)
    encoder = scorer = source
    if folder.is_dir():
        exported = not (folder / "config.json").is_file() and encoder_folder(folder).is_dir()
        encoder = str((encoder_folder(folder) if exported else folder).absolute())
        scorer = str(Path(scored_model(source)).absolute())
    label = name or (RANDOM if given != source else "") + short_name(source)
    return SuiteModel(label, given, encoder, scorer)


def scores_sentences(model: SuiteModel) -> str:
    """Return why a model cannot score the sentences of BLiMP; empty if it can."""
    try:
        kind_of(model.scorer)
    except UserError as error:
        return f"{error.what}: {error.got}"
    return ""


def with_weights(model: SuiteModel, out: Path, scored: bool) -> SuiteModel:
    """Return the model to load; one with random weights is written to `out` first."""
    if not model.given.startswith(RANDOM):
        return model
    folder = out / model.folder
    folder.mkdir(parents=True, exist_ok=True)
    source = {"encoder": fingerprint(model.encoder), "scorer": fingerprint(model.scorer)}
    if (path := folder / SOURCE_FILE).is_file():
        refuse_other(folder, read_json(path), source, others="the sizes of another model")
    else:
        write_json(path, source)
    encoder = folder / "encoder"
    write_untrained(model.encoder, encoder)
    if not scored or model.scorer == model.encoder:
        return model._replace(encoder=str(encoder), scorer=str(encoder))
    scorer = folder / "scorer"
    write_untrained(model.scorer, scorer)
    return model._replace(encoder=str(encoder), scorer=str(scorer))
