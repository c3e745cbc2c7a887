"""The `electrify recipes` command: list, show, copy and check recipes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from electrify.config import AcceptsTextPaths
from electrify.errors import UserError
from electrify.recipes import schema
from electrify.storage.commit import committed

DO = Literal["list", "show", "copy", "check"]
VOCABULARY_SIZE = 30_522  # of bert-base-uncased, to count parameters
GROUPS = {
    "Recommended": "Recommended: `electrify train` chooses among these",
    "Reproduction": "Reproductions of published models",
    "Experiment": "Experiments and negative results: not recommended",
}
"""The headings of the list, by the word in the recipes' files."""
COLUMNS = {
    "hardware": ("hardware", "<11"),
    "time": ("time", "<8"),
    "parameters": ("params", ">7"),
    "length": ("length", ">6"),
    "vocabulary": ("vocab", ">7"),
}
"""The headings and formats of the columns, which fit into 80 characters."""


@dataclass(frozen=True)
class Recipes(AcceptsTextPaths):
    """List the recipes, show one, copy one to edit it, or check one before training."""

    do: Annotated[DO, tyro.conf.Positional] = "list"
    """List all recipes, show one, copy one to a file, or check one."""
    recipe: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[RECIPE]")] = ""
    """Name of a recipe, or the path of your own TOML file."""
    file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE]")] = None
    """File to copy to; NAME.toml in the current folder by default."""


class Facts(NamedTuple):
    """What a recipe is for: the two lines at the head of its file, and its length."""

    use: str
    group: str
    hardware: str
    time: str
    """Of the complete run; of a CPU recipe: the budgets that it suits."""
    parameters: str
    """Trained in total with that vocabulary, shared ones counted once."""
    vocabulary: str
    length: int


def facts_of(name: str) -> Facts:
    """Read what a recipe of the package is for."""
    use, facts = _head(name)
    group, hardware, time, parameters, vocabulary = facts.split(" · ")
    return Facts(
        *(use, group, hardware, time),
        parameters.removesuffix(" parameters"),
        vocabulary.removeprefix("vocabulary "),
        schema.load(name).run.length,
    )


def _head(name: str) -> list[str]:
    return [line.removeprefix("# ") for line in [*_source(name).splitlines(), "", ""][:2]]


def by_purpose() -> dict[str, Facts]:
    """Return the recipes of the package: recommended ones first, small models first."""
    order = list(GROUPS)
    named = [(name, facts_of(name)) for name in schema.names()]

    def rank(pair: tuple[str, Facts]) -> tuple[int, float]:
        return order.index(pair[1].group), float(pair[1].parameters.removesuffix(" M"))

    return dict(sorted(named, key=rank))


def recipes(settings: Recipes) -> dict[str, dict[str, Any]]:
    """Run the command; returns recipe names with what they are for."""
    if settings.do == "list":
        if settings.recipe:
            raise UserError(
                "`recipes list` takes no recipe",
                got=settings.recipe,
                fix=f"use electrify recipes show {settings.recipe}",
            )
        print(_list())
        return {name: facts._asdict() for name, facts in by_purpose().items()}
    if not settings.recipe:
        raise UserError(
            f"`recipes {settings.do}` needs the name of a recipe",
            got="no name",
            fix=f"use electrify recipes {settings.do} NAME; `electrify recipes` lists the names",
        )
    if settings.file and settings.do != "copy":
        raise UserError(
            f"`recipes {settings.do}` takes one recipe",
            got=f"{settings.file}",
            fix="leave it out",
        )
    if settings.do == "show":
        print(_source(settings.recipe), end="")
    elif settings.do == "copy":
        _copy(settings.recipe, settings.file)
    else:
        print(_check(settings.recipe))
    return {settings.recipe: {"use": _head(settings.recipe)[0]}}


def _list() -> str:
    headings = {column: heading for column, (heading, _) in COLUMNS.items()}
    lines, found = [_row("recipe", headings)], by_purpose()
    for group, heading in GROUPS.items():
        lines += ["", heading]
        for name, facts in found.items():
            if facts.group == group:
                lines += [_row(name, facts._asdict()), f"    {facts.use}"]
    return "\n".join(
        [
            *lines,
            "",
            "Times on GPUs are estimates for the complete run; --budget makes a run shorter.",
            "electrify recipes show NAME      electrify recipes copy NAME [FILE]",
            "electrify plan NAME              electrify pretrain NAME --data SHARDS --out RUN",
        ]
    )


def _row(name: str, facts: dict[str, Any]) -> str:
    cells = (f"{facts[column]:{form}}" for column, (_, form) in COLUMNS.items())
    return f"  {name:<30} {'  '.join(cells)}"


def _source(name: str) -> str:
    path = schema.recipe_path(name)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}", got=str(error), fix="check the path") from error


def _copy(name: str, file: Path | None) -> None:
    source = _source(name)
    target = file or Path(f"{Path(name).stem}.toml")
    if target.suffix != ".toml":
        raise UserError(
            "a recipe must be a .toml file",
            got=f"{target}",
            fix=f"use {target.with_suffix('.toml')}",
        )
    if target.exists():
        raise UserError(f"{target} already exists", got=f"{target}", fix="give another name")
    if not target.parent.is_dir():
        raise UserError(
            f"there is no folder {target.parent}", got=f"{target}", fix="create the folder first"
        )
    with committed(target) as temporary:
        temporary.write_text(source, encoding="utf-8")
    print(f"wrote {target}; after editing it, run: electrify recipes check {target}")


def _check(name: str) -> str:
    """Load a recipe, check its values and build its networks without weights."""
    recipe = schema.load(name)
    schema.check(recipe)  # before torch is imported, which takes seconds
    import torch

    from electrify.models.pair import Vocabulary
    from electrify.planning.fits import check_fits
    from electrify.planning.sketch import parts_of, sketch, trained

    vocabulary = Vocabulary(VOCABULARY_SIZE, pad=0, cls=1, sep=2)
    objective = sketch(recipe, vocabulary)
    sizes = ", ".join(f"{role} {sum(parts_of(net)):,}" for role, net in objective.networks.items())
    lines = [f"{name}: OK", f"  parameters with a vocabulary of {VOCABULARY_SIZE:,}: {sizes}"]
    if len(objective.networks) > 1:
        lines[1] += f", trained in total {trained(objective.networks.values()):,}"
    lines += [f"  note: {note}" for note in objective.notes]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        check_fits(recipe, vocabulary, torch.device(device), rows=0)
    except UserError as error:  # the recipe may be meant for another machine
        lines.append(f"  note: {error.what}: {error.got}")
    return "\n".join(lines)
