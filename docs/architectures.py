"""Try a tiny pair of every architecture and write what came of it: docs/architectures.md.

    python -m docs.architectures

The tests ask the same questions and compare the answers with the table, so it cannot go stale.
"""

# B batch, L length

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
import transformers
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe, tiny_tokenizer
from torch import Tensor, nn

from electrify.batches.batch import Batch
from electrify.errors import UserError
from electrify.models.export import ENCODER_ROLE, encoder_alone, export_networks
from electrify.models.gather import flat_rows, head_only_on
from electrify.models.inputs import call
from electrify.models.pair import ARCHITECTURES, Pair, build_pair
from electrify.models.sharing import shared_parameters
from electrify.objectives.rtd import ReplacedTokenDetection, Weights, replaced_logits
from electrify.recipes.schema import Sharing

TABLE = Path(__file__).with_suffix(".md")
TOLERANCE = 1e-5  # of logits and, relative to the largest, of gradients
PADDING, MORE_PADDING = 5, 16

# What no loss reaches, by a part of its name, and why that is as it should be.
NOT_REACHED = {
    "pooler": "sums up a whole text for tasks that we do not train",
    "contact_head": "tells which parts of a protein touch",
    "_global": "serves tokens marked as global, of which there are none",
    "entity_": "serves entities beside the text, of which there are none",
    "w2e_query": "turns tokens to entities",
    "e2w_query": "turns entities to tokens",
    "e2e_query": "turns entities to each other",
}
# What the errors of the libraries mean, by architecture and question.
IN_WORDS = {
    ("mra", "gradients"): "none reaches its attention, which is a CUDA kernel: without it "
    "transformers takes zeros for the result",
    ("funnel", "half the depth"): "its depth is a list, `block_sizes`",
    ("ibert", "gdes"): "the tables of I-BERT return a scale beside the rows",
    ("squeezebert", "half the width"): "the tables must have the width of the body",
}


class Trial(NamedTuple):
    """What one architecture does. Reasons are empty where nothing is wrong."""

    classes: tuple[str, str]
    gathered: float
    """The largest difference between logits of the slots alone and the same of all tokens."""
    stray: list[str]
    """Parameters whose gradient is not what the losses of their own networks give them."""
    not_reached: list[str]
    """Trainable parameters without any gradient."""
    tied: list[str]
    """Modules of the tables that both networks have, at the same size."""
    apart: list[str]
    """Tables that each has for itself."""
    shrinks: list[str]
    """Ways to make the generator smaller that leave the word table tied."""
    gdes: bool
    """Whether gradient-disentangled sharing works."""
    padding: float
    """How much more padding changes the discriminator's logits, relative to the largest."""
    reloads: bool
    """Whether what is exported loads again with the same logits."""
    errors: list[str]
    """What the questions with the answer no ended in."""


@cache
def trial(architecture: str) -> Trial:
    """Ask everything; raises what building the pair raises."""
    pair = build_pair(tiny_recipe(architecture), VOCABULARY)
    inputs = tiny_inputs(padding=PADDING)
    errors: list[str] = []
    with asking("gdes", errors):
        check_disentangled(architecture, inputs)
    with asking("export", errors):
        check_reload(pair)
    shrinks = list(shrinking(architecture, inputs, errors))
    return Trial(
        (type(pair.generator).__name__, type(pair.discriminator).__name__),
        gathered_difference(pair.generator, inputs),
        *stray_and_missing(model_of(pair), inputs),
        tied_modules(pair),
        lone_tables(pair),
        shrinks,
        not any(error.startswith("gdes") for error in errors),
        padding_difference(pair.discriminator, inputs),
        not any(error.startswith("export") for error in errors),
        errors,
    )


@contextmanager
def asking(what: str, errors: list[str]) -> Iterator[None]:
    """Inside, whatever goes wrong is the answer."""
    try:
        yield
    except UserError as error:
        errors.append(f"{what}: {error.got}")
    except Exception as error:
        errors.append(f"{what}: {type(error).__name__}: {error}")


def model_of(pair: Pair) -> ReplacedTokenDetection:
    """The pair under the objective, with the official weights of the losses."""
    return ReplacedTokenDetection(pair.generator, pair.discriminator, Weights())


@torch.no_grad()
def gathered_difference(generator: nn.Module, inputs: Batch) -> float:
    """How far the head on the slots alone is from the head on all tokens."""
    generator.eval()
    rows_M = flat_rows(inputs.positions_BN, inputs.ids_BL.shape[1])
    full_MV = call(generator, inputs.masked_BL, inputs).logits.flatten(0, 1)[rows_M]
    with head_only_on(generator, rows_M):
        gathered_MV = call(generator, inputs.masked_BL, inputs).logits[0]
    assert gathered_MV.shape == full_MV.shape
    return float((gathered_MV - full_MV).abs().max())


def stray_and_missing(model: ReplacedTokenDetection, inputs: Batch) -> tuple[list[str], list[str]]:
    """Whose gradient is not the sum of what its own networks' losses give, and who has none."""
    both = gradients(model, inputs, Weights())
    by_loss = {
        "generator": gradients(model, inputs, Weights(discriminator=0.0)),
        "discriminator": gradients(model, inputs, Weights(generator=0.0)),
    }
    owned = {role: {id(p) for p in getattr(model, role).parameters()} for role in by_loss}
    stray, missing = [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        wanted = torch.zeros_like(parameter)
        for role, found in by_loss.items():
            if id(parameter) in owned[role]:
                wanted += found[name]
            elif found[name].any():
                stray.append(f"{name}: from the {role}'s loss")
        if (both[name] - wanted).abs().sum() > TOLERANCE * wanted.abs().sum():
            stray.append(f"{name}: not the sum of both")
        learns_from = sum(bool(found[name].any()) for found in by_loss.values())
        owners = sum(id(parameter) in ids for ids in owned.values())
        if learns_from == 0 and parameter.numel():
            missing.append(name)
        elif learns_from < owners:
            stray.append(f"{name}: shared, but learns from one loss")
    return stray, missing


def gradients(model: ReplacedTokenDetection, inputs: Batch, weights: Weights) -> dict[str, Tensor]:
    """The gradient of every parameter for some weights of the losses, 0 where there is none."""
    model.train().zero_grad(set_to_none=True)
    model.weights = weights
    torch.manual_seed(0)
    model(inputs, inputs.totals())[0].backward()
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in model.named_parameters()
    }


def tied_modules(pair: Pair) -> list[str]:
    """The last names of the modules whose parameters both networks have."""
    names = shared_parameters(pair.generator, pair.discriminator)
    return list(dict.fromkeys(name.split(".")[-2] for name in names))


def lone_tables(pair: Pair) -> list[str]:
    """The last names of trained tables that the generator does not share."""
    shared = {id(parameter) for parameter in pair.discriminator.parameters()}
    tables = (
        name.split(".")[-1]
        for name, module in pair.generator.base_model.named_modules()
        if isinstance(module, nn.Embedding)
        and module.weight.requires_grad
        and id(module.weight) not in shared
    )
    return list(dict.fromkeys(tables))


def shrinking(architecture: str, inputs: Batch, errors: list[str]) -> Iterator[str]:
    """Whether half the width and half the depth run and leave the word table tied."""
    for by in ("width", "depth"):
        with asking(f"half the {by}", errors):
            pair = build_pair(tiny_recipe(architecture, **{by: 0.5}), VOCABULARY)
            model_of(pair)(inputs, inputs.totals())[0].backward()
            words = [network.get_input_embeddings().weight for network in pair[:2]]
            apart = dict.fromkeys(note.partition(":")[0].split(".")[-2] for note in pair.notes)
            if words[0] is words[1]:
                yield f"{by} (apart: {', '.join(apart)})" if apart else by


def check_disentangled(architecture: str, inputs: Batch) -> None:
    """Raise unless a table with a difference starts as the generator's and learns alone."""
    pair, plain = (
        build_pair(tiny_recipe(architecture, Sharing(kind)), VOCABULARY)
        for kind in ("gdes", "none")
    )
    words = [network.get_input_embeddings().weight for network in plain[:2]]
    with torch.no_grad():
        words[1].copy_(words[0])
        found_BL, wanted_BL = (
            replaced_logits(call(network.eval(), inputs.ids_BL, inputs).logits)
            for network in (pair.discriminator, plain.discriminator)
        )
    if (found_BL - wanted_BL).abs().max() > TOLERANCE:
        raise ValueError("the sum of both tables is not used as the table was")
    model = model_of(pair)
    found = gradients(model, inputs, Weights(generator=0.0))
    generators = {id(parameter) for parameter in pair.generator.parameters()}
    for name, parameter in model.named_parameters():
        if id(parameter) in generators and found[name].any():
            raise ValueError(f"the discriminator's loss reaches {name}")
    if not pair.discriminator.get_input_embeddings().delta.grad.any():
        raise ValueError("the difference does not learn")


@torch.no_grad()
def padding_difference(discriminator: nn.Module, inputs: Batch) -> float:
    """How much the logits of real tokens change when more padding follows."""
    extra_BL = torch.zeros(len(inputs.ids_BL), MORE_PADDING, dtype=torch.long)
    names = ("ids_BL", "attention_BL", "types_BL")
    padded = {name: torch.cat([getattr(inputs, name), extra_BL], dim=1) for name in names}
    discriminator.eval()
    short_BL, long_BL = (
        replaced_logits(call(discriminator, some.ids_BL, some).logits)
        for some in (inputs, inputs._replace(**padded))
    )
    change_BL = (long_BL[:, : short_BL.shape[1]] - short_BL) * inputs.attention_BL
    return float(change_BL.abs().max() / short_BL.abs().max())


def check_reload(pair: Pair) -> None:
    """Raise unless the exported pair loads with the same logits, which `export_networks` checks."""
    networks = {
        "discriminator": pair.discriminator,
        "generator": pair.generator,
        ENCODER_ROLE: encoder_alone(pair.discriminator),
    }
    with tempfile.TemporaryDirectory() as folder:
        cards = dict.fromkeys(networks, "")
        export_networks(networks, cards, tiny_tokenizer(), Path(folder) / "out", {}, longest=64)


# --- words


def faults(architecture: str, found: Trial) -> list[str]:
    """Why an architecture cannot be used, though it can be built."""
    wrong = list(found.stray)
    if found.gathered > TOLERANCE:
        wrong.append(f"the gathered logits differ by {found.gathered:.0e}")
    if unexplained := [n for n in found.not_reached if not any(part in n for part in NOT_REACHED)]:
        wrong.append(f"gradients: none reaches {unexplained[0]}")
    if not found.reloads:
        wrong += [error for error in found.errors if error.startswith("export")]
    return [in_words(architecture, error) for error in wrong]


def in_words(architecture: str, error: str) -> str:
    """What an error means, if that is known."""
    question = error.partition(":")[0]
    words = IN_WORDS.get((architecture, question))
    return f"{question}: {words}" if words else error


COLUMNS = {
    "architecture": "model type of `transformers`",
    "classes": "of generator and discriminator",
    "gathered": "the largest difference between the generator's logits for the slots alone and the "
    "same logits computed for all tokens",
    "`tied` ties": "the tables and norms that both networks have, at the same width",
    "stays apart": "tables that each network has for itself nevertheless, as they lie elsewhere",
    "generator shrinks by": "what may be smaller while the word table stays tied, and what of the "
    "rest then stays apart; where width is missing, the tables have the width of the body",
    "`gdes`": "whether gradient-disentangled sharing starts as the generator's table, and sends no "
    "gradient back",
    "blind to padding": "whether the output stays the same when more padding follows; where it "
    "does not, the output for a text depends on the texts beside it in the batch",
    "reloads": "whether the exported folders load in `transformers` with the same logits",
    "remarks": "parameters that no loss reaches, and why something above does not work",
}


def row(architecture: str, found: Trial) -> list[str]:
    """A row of the table of what works."""
    remarks = [
        f"no loss reaches `{part.strip('_')}`, which {why}"
        for part, why in NOT_REACHED.items()
        if any(part in name for name in found.not_reached)
    ]
    remarks += [in_words(architecture, error) for error in found.errors]
    return [
        architecture,
        ", ".join(found.classes),
        f"{found.gathered:.0e}" if found.gathered else "0",
        ", ".join(found.tied),
        ", ".join(found.apart) or "-",
        ", ".join(found.shrinks) or "-",
        YES_OR_NO[found.gdes],
        YES_OR_NO[found.padding <= TOLERANCE],
        YES_OR_NO[found.reloads],
        "; ".join(remarks) or "-",
    ]


YES_OR_NO = {True: "yes", False: "no"}


def tried() -> tuple[list[list[str]], dict[str, str]]:
    """Rows of what works, and reasons by architecture for what does not."""
    rows, failures = [], {}
    for architecture in ARCHITECTURES:
        try:
            found = trial(architecture)
        except UserError as error:
            failures[architecture] = f"{error.what}: {error.got}"
            continue
        if wrong := faults(architecture, found):
            failures[architecture] = wrong[0]
        else:
            rows.append(row(architecture, found))
    return rows, failures


def page(rows: list[list[str]], failures: dict[str, str]) -> str:
    """The whole page."""
    lines = [
        "# Architectures",
        "",
        "Every architecture for which `transformers` has a masked-LM and a token-classification "
        "class, tried with a tiny pair.",
        f"Made by `make docs-architectures` with transformers {transformers.__version__}; "
        "`tests/models/test_architectures.py` compares it with what it finds.",
        "",
        f"{len(rows)} of {len(ARCHITECTURES)} work: one step of replaced token detection runs, "
        "the gathered logits equal the full ones",
        f"to {TOLERANCE:.0e}, generator and discriminator learn each from its own loss and what "
        "they share from both, and the export reloads.",
        "",
        *(f"- **{name}**: {words}" for name, words in COLUMNS.items()),
        "",
        *_table(list(COLUMNS), rows),
        "",
        "## What does not work",
        "",
        *_table(["architecture", "why"], [[name, why] for name, why in failures.items()]),
    ]
    return "\n".join(lines) + "\n"


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    cells = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in cells]


def rows_of(text: str) -> dict[str, list[str]]:
    """The rows of a page's tables, by architecture."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {cells[0]: cells for cells in lines if cells[0] not in ("architecture", "---")}


def main() -> None:
    """Write the page."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    rows, failures = tried()
    TABLE.write_text(page(rows, failures), encoding="utf-8")
    print(f"{TABLE}: {len(rows)} work, {len(failures)} do not ({', '.join(failures)})")


if __name__ == "__main__":
    main()
