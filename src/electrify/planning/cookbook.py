"""The recipes that come along, and one's own: `electrify recipes`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from electrify.config import AcceptsTextPaths
from electrify.errors import UserError
from electrify.recipes import schema
from electrify.storage.commit import committed

DO = Literal["list", "show", "copy", "check"]
VOCABULARY = 30_522  # of bert-base-uncased, for counting


@dataclass(frozen=True)
class Recipes(AcceptsTextPaths):
    """List the recipes, print one, copy one to edit it, or check one before it is run."""

    do: Annotated[DO, tyro.conf.Positional] = "list"
    """What to do."""
    recipe: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[RECIPE]")] = ""
    """A recipe's name, or to check one's own, its path."""
    file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE]")] = None
    """Where to copy it to; NAME.toml here otherwise."""


def recipes(settings: Recipes) -> dict[str, str]:
    """Do what is asked; returns the recipes and what they are."""
    if settings.do == "list":
        if settings.recipe:
            raise UserError(
                "the list takes no name",
                got=settings.recipe,
                fix=f"electrify recipes show {settings.recipe}",
            )
        print(_list())
        return {name: _says(name) for name in schema.names()}
    if not settings.recipe:
        raise UserError(
            f"which recipe to {settings.do}?",
            got="no name",
            fix=f"electrify recipes {settings.do} NAME; electrify recipes lists them",
        )
    if settings.file and settings.do != "copy":
        raise UserError(
            f"{settings.do} takes one recipe", got=f"{settings.file}", fix="leave that out"
        )
    if settings.do == "show":
        print(_source(settings.recipe), end="")
    elif settings.do == "copy":
        _copy(settings.recipe, settings.file)
    else:
        print(_check(settings.recipe))
    return {settings.recipe: _says(settings.recipe)}


def _list() -> str:
    width = max(map(len, schema.names()))
    lines = [f"  {name:<{width}}  {_says(name)}" for name in schema.names()]
    return "\n".join(
        [
            *lines,
            "",
            "electrify recipes show NAME      electrify recipes copy NAME [FILE]",
            "electrify plan NAME              electrify pretrain NAME --data SHARDS --out RUN",
        ]
    )


def _says(name: str) -> str:
    """The first line of the recipe's file, which says what it is."""
    return next(iter(_source(name).splitlines()), "").removeprefix("# ")


def _source(name: str) -> str:
    path = schema.path_of(name)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}", got=str(error), fix="check the path") from error


def _copy(name: str, file: Path | None) -> None:
    source = _source(name)
    target = file or Path(f"{Path(name).stem}.toml")
    if target.suffix != ".toml":
        raise UserError(
            "a recipe is a .toml file", got=f"{target}", fix=f"{target.with_suffix('.toml')}"
        )
    if target.exists():
        raise UserError(f"{target} is there already", got=f"{target}", fix="give another name")
    if not target.parent.is_dir():
        raise UserError(f"no folder {target.parent}", got=f"{target}", fix="make the folder first")
    with committed(target) as temporary:
        temporary.write_text(source, encoding="utf-8")
    print(f"{target}: edit it, then electrify recipes check {target}")


def _check(name: str) -> str:
    """Load a recipe, check its values, and build its networks without weights."""
    chosen = schema.load(name)
    schema.check(chosen)  # before torch is imported, which takes seconds
    import torch

    from electrify.models.pair import Vocabulary
    from electrify.planning.fits import check_fits
    from electrify.planning.sketch import parts_of, sketch, trained

    vocabulary = Vocabulary(VOCABULARY, pad=0, cls=1, sep=2)
    drawing = sketch(chosen, vocabulary)
    sizes = ", ".join(f"{role} {sum(parts_of(net)):,}" for role, net in drawing.networks.items())
    lines = [f"{name}: OK", f"  parameters with {VOCABULARY:,} tokens: {sizes}"]
    if len(drawing.networks) > 1:
        lines[1] += f", trained in all {trained(drawing.networks.values()):,}"
    lines += [f"  note: {note}" for note in drawing.notes]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        check_fits(chosen, vocabulary, torch.device(device), rows=0)
    except UserError as error:  # the recipe may be for another machine
        lines.append(f"  note: {error.what}: {error.got}")
    return "\n".join(lines)
