"""Implement `electrify export RUN --out DIR`: a checkpoint in the formats that others load.

DIR/ROLE                     every network for transformers (models/export.py)
DIR/sentence-transformers    --sentence-transformers: sentence vectors
DIR/onnx/ROLE                --onnx: every network for ONNX Runtime
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from electrify.errors import UserError
from electrify.finetuning.encoder import fingerprint
from electrify.models.export import ENCODER_ROLE, update_card
from electrify.models.sentence_folder import read_sentence_folder
from electrify.objectives.card import CardInputs, CardUse, card
from electrify.objectives.card_metadata import CardDetails
from electrify.publishing.onnx_export import ONNX_FOLDER, export_onnx, need_onnx
from electrify.publishing.options import ExportModel
from electrify.publishing.push import (
    MAIN_BRANCH,
    STEP_BRANCH,
    Repository,
    open_repository,
    push,
    repository_files,
)
from electrify.publishing.scores import (
    check_folders,
    need_scores,
    result_folders_beside,
    scores_of,
)
from electrify.publishing.sentence_vectors import (
    SENTENCES_FOLDER,
    export_sentence_vectors,
    need_sentence_transformers,
    write_sentence_card,
)
from electrify.training.export_run import Exported, export_checkpoint
from electrify.training.options import NEWEST

LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*|multilingual|code")
LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]*")


def export(settings: ExportModel) -> dict[str, Path]:
    """Write the folders that are missing, update cards, upload; returns the folders by name."""
    settings = _checked(settings)
    if settings.sentence_transformers:
        need_sentence_transformers()
    if settings.onnx:
        need_onnx()
    repository = None
    if settings.push:
        repository = open_repository(settings.push, settings.revision, settings.private)
    exported = export_checkpoint(settings)
    folders = dict(exported.folders)
    facts = exported.facts
    if _describes(settings):
        facts = facts._replace(details=_details(settings, exported))
        _update_cards(settings.out, exported, facts)
    sentences = settings.out / SENTENCES_FOLDER
    if settings.sentence_transformers:
        encoder = _encoder(exported.folders, settings.out)
        folders[SENTENCES_FOLDER] = export_sentence_vectors(encoder, sentences, settings.pooling)
    if settings.sentence_transformers or _describes(settings):
        _update_sentence_card(sentences, exported, facts)
    onnx = {}
    if settings.onnx:
        onnx = export_onnx(exported.folders, settings.out / ONNX_FOLDER)
        folders |= {f"{ONNX_FOLDER}/{role}": folder for role, folder in onnx.items()}
    if repository is not None:
        pooled = settings.pooling if settings.sentence_transformers else ""
        files = repository_files(exported.folders, sentences if pooled else None, onnx)
        cards = _repository_cards(repository, exported, facts, pooled, onnx)
        print(push(repository, files, cards, f"Step {exported.step:,}"))
    return folders


def _checked(settings: ExportModel) -> ExportModel:
    """Refuse invalid options; --revision step-N chooses that checkpoint."""
    for option, pattern, values, fix in (
        ("language", LANGUAGE, settings.language, "use ISO codes such as en, de or ko"),
        ("license", LICENSE, [settings.license], "use the Hub's name, such as apache-2.0 or mit"),
    ):
        for value in filter(None, values):
            if not pattern.fullmatch(value):
                raise UserError(
                    f"--{option} is not a {option} that the Hub knows", got=value, fix=fix
                )
    if not settings.push:
        for option in ("private", "revision"):
            if getattr(settings, option):
                got = f"--{option} without --push"
                raise UserError(f"--{option} is for --push", got=got, fix="add --push me/my-model")
    check_folders(settings.scores)
    step = STEP_BRANCH.fullmatch(settings.revision)
    if step is None:
        return settings
    if settings.step not in (NEWEST, int(step[1])):
        raise UserError(
            "--revision and --step name different checkpoints",
            got=f"--revision {settings.revision} --step {settings.step}",
            fix=f"use --revision step-{settings.step}, or leave --step out",
        )
    return replace(settings, step=int(step[1]))


def _describes(settings: ExportModel) -> bool:
    """Return whether the cards are to say more than the run knows."""
    given = (settings.language, settings.license, settings.dataset, settings.base_model)
    return any(given) or bool(settings.scores) or bool(settings.push)


def _details(settings: ExportModel, exported: Exported) -> CardDetails:
    folders = {**exported.folders, SENTENCES_FOLDER: settings.out / SENTENCES_FOLDER}
    fingerprints = {role: fingerprint(str(p)) for role, p in folders.items() if p.is_dir()}
    if settings.scores:
        scores = need_scores(settings.scores, fingerprints)
    else:
        scores = scores_of(result_folders_beside(settings.run, settings.out), fingerprints)
    files = sorted({score.file for score in scores})
    if files:
        found = ", ".join(sorted({Path(file).parts[0] for file in files}))
        print(f"model cards: {len(scores)} scores from {len(files)} result files in {found}")
    return CardDetails(
        settings.language,
        settings.license,
        settings.dataset,
        settings.base_model or known_base_model(exported.facts),
        scores,
    )


def known_base_model(facts: CardInputs) -> str:
    """Return the Hub name that the discriminator started from; empty if it may be a folder.

    A recipe names both in the same way. A model that the Hub's cache has is one of the Hub.
    """
    source = facts.recipe.discriminator.init_from
    if source.count("/") != 1 or Path(source).exists() or Path(source).is_absolute():
        return ""
    try:
        cached = try_to_load_from_cache(source, "config.json")
    except HFValidationError:  # a folder that is gone, whose path cannot be a Hub name
        return ""
    return source if isinstance(cached, str) else ""


def _encoder(folders: Mapping[str, Path], out: Path) -> Path:
    if ENCODER_ROLE not in folders:
        raise UserError(
            f"{out} has no encoder, from which sentence vectors are made",
            got="an export of an earlier version",
            fix="use another --out",
        )
    return folders[ENCODER_ROLE]


def _own(facts: CardInputs, role: str) -> CardInputs:
    """Return the facts with the scores of one network; the encoder's card has all scores."""
    if role == ENCODER_ROLE:
        return facts
    scores = [score for score in facts.details.scores if score.network == role]
    return facts._replace(details=facts.details._replace(scores=scores))


def _update_cards(out: Path, exported: Exported, facts: CardInputs) -> None:
    updated = [
        role
        for role in exported.folders
        if update_card(
            out,
            "model",
            f"{role}/README.md",
            card(role, exported.networks[role], _own(facts, role)),
        )
    ]
    if updated:
        print(f"model cards updated: {', '.join(updated)}")


def _update_sentence_card(folder: Path, exported: Exported, facts: CardInputs) -> None:
    """Write the card of sentence vectors, if this export or an earlier one has them."""
    model = read_sentence_folder(str(folder)) if (folder / "manifest.json").is_file() else None
    if model is not None:
        encoder, use = exported.networks[ENCODER_ROLE], CardUse(pooling=model.pooling)
        write_sentence_card(folder, card(ENCODER_ROLE, encoder, facts, use))


def _repository_cards(
    repository: Repository,
    exported: Exported,
    facts: CardInputs,
    pooling: str,
    onnx: Mapping[str, Path],
) -> dict[str, str]:
    """Return the cards of the repository by path; the one at its root describes what it has."""
    branch = "" if repository.branch == MAIN_BRANCH else repository.branch
    cards = {}
    for role in exported.folders:
        network, root = exported.networks[role], role == ENCODER_ROLE
        use = CardUse(repository.repo, "" if root else role, branch)
        if root:
            contents = _contents(exported, pooling, onnx)
            use = use._replace(pooling=pooling, contents=contents)
        path = "README.md" if root else f"{role}/README.md"
        cards[path] = card(role, network, _own(facts, role), use)
    return cards


def _contents(exported: Exported, pooling: str, onnx: Mapping[str, Path]) -> list[str]:
    lines = [
        f'- `{role}/`: {type(exported.networks[role]).__name__}, load it with `subfolder="{role}"`'
        for role in exported.folders
        if role != ENCODER_ROLE
    ]
    if pooling:
        name = type(exported.networks[ENCODER_ROLE]).__name__
        lines.append(f"- the encoder itself: `AutoModel` or `{name}` of transformers loads it")
    if onnx:
        lines.append("- `onnx/model.onnx`, here and in every folder, for ONNX Runtime")
    return lines
