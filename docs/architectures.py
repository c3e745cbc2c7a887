"""Try a tiny pair of every architecture and write the results to docs/architectures.md.

    python -m docs.architectures

The tests run the same checks and compare the results with the page, so it stays up to date.
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
from tests.models.tiny import VOCABULARY, packed_inputs, tiny_inputs, tiny_recipe, tiny_tokenizer
from torch import Tensor, nn

from electrify.batches.batch import Batch
from electrify.errors import UserError
from electrify.models.documents import document_numbers
from electrify.models.export import ENCODER_ROLE, encoder_alone, export_networks
from electrify.models.fast import enable_fast_path
from electrify.models.gather import flat_rows, gather_head_rows
from electrify.models.inputs import call
from electrify.models.pair import ARCHITECTURES, Pair, build_pair
from electrify.models.sharing import shared_parameters
from electrify.objectives.rtd import ReplacedTokenDetection, Weights, replaced_logits
from electrify.recipes.schema import Sharing

TABLE = Path(__file__).with_suffix(".md")
TOLERANCE = 1e-5  # of logits, and of gradients relative to the largest
PADDING, EXTRA_PADDING = 5, 16

# Parameters that get no gradient, by a part of their name, and why that is correct.
NOT_REACHED = {
    "pooler": "summarises a whole text for tasks that are not trained here",
    "contact_head": "predicts which parts of a protein touch",
    "_global": "is used for global tokens, of which there are none",
    "entity_": "is used for entities, of which there are none",
    "w2e_query": "attends from tokens to entities",
    "e2w_query": "attends from entities to tokens",
    "e2e_query": "attends from entities to entities",
}
# What the errors of the libraries mean, by architecture and check.
EXPLANATIONS = {
    ("mra", "gradients"): "its attention gets none; it is a CUDA kernel, without which "
    "transformers returns zeros",
    ("funnel", "half the depth"): "its depth is a list, `block_sizes`",
    ("ibert", "gdes"): "the embeddings of I-BERT also return a scale",
    ("squeezebert", "half the width"): "the embeddings must be as wide as the encoder",
}


class Trial(NamedTuple):
    """The results of all checks of one architecture."""

    classes: tuple[str, str]
    gathered: float
    """Largest difference between the logits of the slots only and those from all tokens."""
    stray: list[str]
    """Parameters whose gradient is not that of the losses of their own networks."""
    not_reached: list[str]
    """Trainable parameters without a gradient."""
    tied: list[str]
    """Embedding modules that the two networks share at the same size."""
    unshared: list[str]
    """Embeddings that each network has separately."""
    shrinks: list[str]
    """Ways to shrink the generator that keep the word embeddings tied."""
    gdes: bool
    """Whether gradient-disentangled sharing works."""
    padding: float
    """Change of the discriminator's logits with more padding, relative to the largest."""
    packed: float
    """Difference between the logits of packed and of separate documents, relative to the largest;
    infinite if the architecture cannot be packed at all."""
    reloads: bool
    """Whether the export loads again with the same logits."""
    errors: list[str]
    """Errors of the checks that failed."""


@cache
def trial(architecture: str) -> Trial:
    """Run all checks; raises what building the pair raises."""
    pair = build_pair(tiny_recipe(architecture), VOCABULARY)
    inputs = tiny_inputs(padding=PADDING)
    errors: list[str] = []
    with collecting("gdes", errors):
        check_disentangled(architecture, inputs)
    with collecting("export", errors):
        check_reload(pair)
    shrinks = list(shrinking(architecture, inputs, errors))
    return Trial(
        (type(pair.generator).__name__, type(pair.discriminator).__name__),
        gathered_difference(pair.generator, inputs),
        *stray_and_missing(model_of(pair), inputs),
        tied_modules(pair),
        unshared_embeddings(pair),
        shrinks,
        not any(error.startswith("gdes") for error in errors),
        padding_difference(pair.discriminator, inputs),
        max(packed_difference(network) for network in pair[:2]),
        not any(error.startswith("export") for error in errors),
        errors,
    )


@contextmanager
def collecting(check: str, errors: list[str]) -> Iterator[None]:
    """Append any error inside the context to a list."""
    try:
        yield
    except UserError as error:
        errors.append(f"{check}: {error.got}")
    except Exception as error:
        errors.append(f"{check}: {type(error).__name__}: {error}")


def model_of(pair: Pair) -> ReplacedTokenDetection:
    """Return replaced token detection with the pair and the official loss weights."""
    return ReplacedTokenDetection(pair.generator, pair.discriminator, Weights())


@torch.no_grad()
def gathered_difference(generator: nn.Module, inputs: Batch) -> float:
    """Return how much the logits of the slots only differ from those of all tokens."""
    generator.eval()
    rows_M = flat_rows(inputs.positions_BN, inputs.ids_BL.shape[1])
    full_MV = call(generator, inputs.masked_BL, inputs).logits.flatten(0, 1)[rows_M]
    with gather_head_rows(generator, rows_M):
        gathered_MV = call(generator, inputs.masked_BL, inputs).logits[0]
    assert gathered_MV.shape == full_MV.shape
    return float((gathered_MV - full_MV).abs().max())


def stray_and_missing(model: ReplacedTokenDetection, inputs: Batch) -> tuple[list[str], list[str]]:
    """Return parameters whose gradient is not the sum of their networks' losses, or is missing."""
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
    """Return the gradient of every parameter for these loss weights, 0 where there is none."""
    model.train().zero_grad(set_to_none=True)
    model.weights = weights
    torch.manual_seed(0)
    model(inputs, inputs.totals())[0].backward()
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in model.named_parameters()
    }


def tied_modules(pair: Pair) -> list[str]:
    """Return the last names of the modules whose parameters both networks share."""
    names = shared_parameters(pair.generator, pair.discriminator)
    return list(dict.fromkeys(name.split(".")[-2] for name in names))


def unshared_embeddings(pair: Pair) -> list[str]:
    """Return the last names of trained embeddings that the generator does not share."""
    shared = {id(parameter) for parameter in pair.discriminator.parameters()}
    names = (
        name.split(".")[-1]
        for name, module in pair.generator.base_model.named_modules()
        if isinstance(module, nn.Embedding)
        and module.weight.requires_grad
        and id(module.weight) not in shared
    )
    return list(dict.fromkeys(names))


def shrinking(architecture: str, inputs: Batch, errors: list[str]) -> Iterator[str]:
    """Yield the ways of halving the generator that run and keep the word embeddings tied."""
    for by in ("width", "depth"):
        with collecting(f"half the {by}", errors):
            pair = build_pair(tiny_recipe(architecture, **{by: 0.5}), VOCABULARY)
            model_of(pair)(inputs, inputs.totals())[0].backward()
            words = [network.get_input_embeddings().weight for network in pair[:2]]
            unshared = dict.fromkeys(note.split(":")[1].split(".")[-2] for note in pair.notes)
            if words[0] is words[1]:
                yield f"{by} (not shared: {', '.join(unshared)})" if unshared else by


def check_disentangled(architecture: str, inputs: Batch) -> None:
    """Raise unless disentangled embeddings start as the generator's and learn separately."""
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
        raise ValueError("the sum of both matrices is not used like ordinary embeddings")
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
    """Return how much the logits of real tokens change when more padding follows."""
    extra_BL = torch.zeros(len(inputs.ids_BL), EXTRA_PADDING, dtype=torch.long)
    names = ("ids_BL", "attention_BL", "types_BL")
    padded = {name: torch.cat([getattr(inputs, name), extra_BL], dim=1) for name in names}
    discriminator.eval()
    short_BL, long_BL = (
        replaced_logits(call(discriminator, batch.ids_BL, batch).logits)
        for batch in (inputs, inputs._replace(**padded))
    )
    change_BL = (long_BL[:, : short_BL.shape[1]] - short_BL) * inputs.attention_BL
    return float(change_BL.abs().max() / short_BL.abs().max())


@torch.no_grad()
def packed_difference(network: nn.Module) -> float:
    """Return how much the logits of packed documents differ from those of separate ones."""
    enable_fast_path(network)
    inputs = packed_inputs()
    try:
        packed = call(network.eval(), inputs.ids_BL, inputs).logits
    except Exception:
        return float("inf")
    numbers_BL = document_numbers(inputs.starts_BK, inputs.ids_BL.shape[1])
    differences = []
    for row, numbers_L in enumerate(numbers_BL):
        for number in numbers_L[inputs.attention_BL[row] == 1].unique():
            chosen_L = numbers_L == number
            alone = Batch(*(field[row : row + 1, chosen_L] for field in inputs[:4]), *inputs[4:7])
            logits = call(network, alone.ids_BL, alone).logits[0]
            differences.append(float((logits - packed[row, chosen_L]).abs().max()))
    return max(differences) / float(packed.abs().max())


def check_reload(pair: Pair) -> None:
    """Raise unless the exported pair loads with the same logits, as `export_networks` checks."""
    networks = {
        "discriminator": pair.discriminator,
        "generator": pair.generator,
        ENCODER_ROLE: encoder_alone(pair.discriminator),
    }
    with tempfile.TemporaryDirectory() as folder:
        cards = dict.fromkeys(networks, "")
        export_networks(networks, cards, tiny_tokenizer(), Path(folder) / "out", {}, longest=64)


# --- the page


def faults(architecture: str, found: Trial) -> list[str]:
    """Return why an architecture that can be built cannot be used."""
    reasons = list(found.stray)
    if found.gathered > TOLERANCE:
        reasons.append(f"the gathered logits differ by {found.gathered:.0e}")
    if unexplained := [n for n in found.not_reached if not any(part in n for part in NOT_REACHED)]:
        reasons.append(f"gradients: {unexplained[0]} gets none")
    if not found.reloads:
        reasons += [error for error in found.errors if error.startswith("export")]
    return [explained(architecture, error) for error in reasons]


def explained(architecture: str, error: str) -> str:
    """Return the explanation of an error if there is one, else the error."""
    check = error.partition(":")[0]
    explanation = EXPLANATIONS.get((architecture, check))
    return f"{check}: {explanation}" if explanation else error


COLUMNS = {
    "architecture": "model type of `transformers`",
    "classes": "the classes of generator and discriminator",
    "gathered": "largest difference between the generator's logits computed for the masked "
    "positions only and the same logits computed for all tokens",
    "shared by `tied`": "embeddings and norms that the two networks share at the same width",
    "not shared": "embeddings that each network keeps separately, as they are in another module",
    "generator can shrink in": "what can be smaller while the word embeddings stay tied, and what "
    "is then not shared; where width is missing, the embeddings are as wide as the encoder",
    "`gdes`": "whether gradient-disentangled sharing starts from the generator's embeddings and "
    "sends no gradient back",
    "ignores padding": "whether the output stays the same when more padding follows; if not, the "
    "output for a text depends on the other texts in the batch",
    "packs": "whether documents in one row have the outputs of separate rows, so that "
    "`run.packing` can be used",
    "reloads": "whether the exported folders load in `transformers` with the same logits",
    "remarks": "parameters that get no gradient, and why something does not work",
}


def row(architecture: str, found: Trial) -> list[str]:
    """Return the row of an architecture that works."""
    remarks = [
        f"`{part.strip('_')}` gets no gradient: it {why}"
        for part, why in NOT_REACHED.items()
        if any(part in name for name in found.not_reached)
    ]
    remarks += [explained(architecture, error) for error in found.errors]
    return [
        architecture,
        ", ".join(found.classes),
        f"{found.gathered:.0e}" if found.gathered else "0",
        ", ".join(found.tied),
        ", ".join(found.unshared) or "-",
        ", ".join(found.shrinks) or "-",
        YES_OR_NO[found.gdes],
        YES_OR_NO[found.padding <= TOLERANCE],
        YES_OR_NO[found.packed <= TOLERANCE],
        YES_OR_NO[found.reloads],
        "; ".join(remarks) or "-",
    ]


YES_OR_NO = {True: "yes", False: "no"}


def results() -> tuple[list[list[str]], dict[str, str]]:
    """Return rows of architectures that work, and reasons by architecture for the others."""
    rows, failures = [], {}
    for architecture in ARCHITECTURES:
        try:
            found = trial(architecture)
        except UserError as error:
            failures[architecture] = f"{error.what}: {error.got}"
            continue
        if reasons := faults(architecture, found):
            failures[architecture] = reasons[0]
        else:
            rows.append(row(architecture, found))
    return rows, failures


def page(rows: list[list[str]], failures: dict[str, str]) -> str:
    """Return the whole page."""
    lines = [
        "# Architectures",
        "",
        "Every architecture for which `transformers` has a masked-LM and a token-classification "
        "class, tried with a tiny pair.",
        f"Generated by `make docs-architectures` with transformers {transformers.__version__}; "
        "`tests/models/test_architectures.py` checks that it is up to date.",
        "",
        f"{len(rows)} of {len(ARCHITECTURES)} work: one step of replaced token detection runs, "
        "the gathered logits equal the full ones",
        f"to {TOLERANCE:.0e}, each network learns from its own loss and shared weights from both, "
        "and the export reloads.",
        f"{sum(cells[list(COLUMNS).index('packs')] == 'yes' for cells in rows)} of them can be "
        "packed.",
        "",
        *(f"- **{name}**: {meaning}" for name, meaning in COLUMNS.items()),
        "",
        *_table(list(COLUMNS), rows),
        "",
        "## What does not work",
        "",
        *_table(["architecture", "why"], [[name, why] for name, why in failures.items()]),
    ]
    return "\n".join(lines) + "\n"


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    cells = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in cells]


def rows_of(text: str) -> dict[str, list[str]]:
    """Return the rows of a page's tables by architecture."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {cells[0]: cells for cells in lines if cells[0] not in ("architecture", "---")}


def main() -> None:
    """Write the page."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    rows, failures = results()
    TABLE.write_text(page(rows, failures), encoding="utf-8")
    print(f"{TABLE}: {len(rows)} work, {len(failures)} do not ({', '.join(failures)})")


if __name__ == "__main__":
    main()
