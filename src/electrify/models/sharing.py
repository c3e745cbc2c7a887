"""What a generator and a discriminator have in common.

    tied    word, position and type tables and their LayerNorm are the same parameters (official)
    words   the word table alone
    gdes    the discriminator's word table is the generator's plus a difference of its own, and
            sends no gradient back (DeBERTa-v3's gradient-disentangled embedding sharing)
    none    nothing

In every case the generator's output table is its input table. A shared parameter is one object, so
saving, loading, moving and wrapping the pair cannot take it apart, and an optimizer sees it once.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from electrify.recipes.schema import Sharing

# Where architectures keep the linear map from the width of the tables to that of the body.
PROJECTIONS = ("embeddings_project", "encoder.embedding_hidden_mapping_in", "embeddings.embed_proj")


class DisentangledEmbedding(nn.Module):
    """The generator's table, which gets no gradient from here, plus a difference that does."""

    def __init__(self, base: nn.Embedding) -> None:
        super().__init__()
        self._base = (base,)  # in a tuple: it is the generator's to own, save and move
        self.delta = nn.Parameter(torch.zeros_like(base.weight))

    def forward(self, ids: Tensor) -> Tensor:
        """Look up the sum of both tables."""
        look_up = nn.functional.embedding
        return look_up(ids, self._base[0].weight.detach()) + look_up(ids, self.delta)

    def starts_from(self, base: nn.Embedding) -> bool:
        """Whether this is a difference to that table."""
        return self._base[0] is base

    @property
    def weight(self) -> Tensor:
        """The table as it is exported."""
        return self._base[0].weight.detach() + self.delta

    @property
    def embedding_dim(self) -> int:
        """The width of the table."""
        return self._base[0].embedding_dim


def share(generator: Any, discriminator: Any, sharing: Sharing) -> list[str]:
    """Make the two share; returns in words what was to be shared and cannot be."""
    apart: list[str] = []
    if sharing.embeddings == "gdes":
        base, words = generator.get_input_embeddings(), discriminator.get_input_embeddings()
        if base.weight.shape == words.weight.shape:
            discriminator.set_input_embeddings(DisentangledEmbedding(base))
        else:
            apart.append(_shapes("word table", base.weight, words.weight))
    for what, mine, theirs in _to_share(generator, discriminator, sharing):
        if mine is None or theirs is None:
            apart.append(f"{what}: one of the two has none")
            continue
        for place in _places(what, mine, theirs):
            if place.theirs is None:
                apart.append(f"{place.name}: the discriminator has none")
            elif place.theirs.shape != place.mine.shape:
                apart.append(_shapes(place.name, place.mine, place.theirs))
            else:
                place.module.register_parameter(place.name.split(".")[-1], place.theirs)
    return apart + tie_output(generator)


def broken_ties(generator: Any, discriminator: Any, sharing: Sharing) -> list[str]:
    """The names of what could be shared, is to be shared, and is not."""
    words, output = generator.get_input_embeddings(), generator.get_output_embeddings()
    broken = []
    if output is not None and output.weight.shape == words.weight.shape:
        broken += [] if output.weight is words.weight else ["generator's output table"]
    if sharing.embeddings == "gdes":
        table = discriminator.get_input_embeddings()
        disentangled = isinstance(table, DisentangledEmbedding)
        if table.weight.shape == words.weight.shape and not (
            disentangled and table.starts_from(words)
        ):
            broken.append("word table")
    for what, mine, theirs in _to_share(generator, discriminator, sharing):
        if mine is not None and theirs is not None:
            broken += [
                place.name
                for place in _places(what, mine, theirs)
                if place.theirs is not None
                and place.theirs.shape == place.mine.shape
                and place.theirs is not place.mine
            ]
    return broken


def _to_share(
    generator: Any, discriminator: Any, sharing: Sharing
) -> Iterator[tuple[str, nn.Module | None, nn.Module | None]]:
    """What is to be shared parameter by parameter: its name, the generator's, the other's."""
    if sharing.embeddings == "tied":
        yield "embeddings", embeddings_module(generator), embeddings_module(discriminator)
    elif sharing.embeddings == "words":
        yield "word table", *(net.get_input_embeddings() for net in (generator, discriminator))
    if sharing.projection:
        yield "projection", _projection(generator), _projection(discriminator)
    if sharing.encoder:
        yield "encoder", encoder_of(generator), encoder_of(discriminator)


class _Place(NamedTuple):
    """A parameter of the generator, and what the discriminator has under the same name."""

    name: str
    module: nn.Module
    mine: nn.Parameter
    theirs: nn.Parameter | None


def _places(what: str, mine: nn.Module, theirs: nn.Module) -> Iterator[_Place]:
    modules = dict(theirs.named_modules())
    for path, module in mine.named_modules():
        if what == "embeddings" and isinstance(module, nn.Linear):
            continue  # a projection, which has a switch of its own
        for name, parameter in list(module.named_parameters(recurse=False)):
            other = getattr(modules.get(path), name, None)
            found = other if isinstance(other, nn.Parameter) else None
            yield _Place(f"{what}.{path}.{name}".replace("..", "."), module, parameter, found)


def unequal_embeddings(generator: Any, discriminator: Any, sharing: Sharing) -> list[str]:
    """For released weights: what of the generator gives way to the discriminator, in words."""
    mine, theirs = (net.get_input_embeddings().weight for net in (generator, discriminator))
    if sharing.embeddings not in ("tied", "words") or mine.shape != theirs.shape or mine.is_meta:
        return []
    difference = float((mine - theirs).detach().abs().max())
    if not difference:
        return []
    return [f"word table: the two differ by {difference:.2g}; the discriminator's is taken"]


def tie_output(generator: Any) -> list[str]:
    """Make the output table the input table; returns in words why, where that cannot be."""
    words, output = generator.get_input_embeddings(), generator.get_output_embeddings()
    if output is None:
        return ["output table: the architecture does not say where it is"]
    if output.weight.shape != words.weight.shape:
        return [_shapes("output table", output.weight, words.weight)]
    output.weight = words.weight
    generator.config.tie_word_embeddings = True  # so that it is still one after from_pretrained
    return []


def _shapes(what: str, mine: Tensor, theirs: Tensor) -> str:
    return f"{what}: {tuple(mine.shape)} and {tuple(theirs.shape)}"


def embeddings_module(model: Any) -> nn.Module:
    """The module that holds the word table, and with it the other tables."""
    words, body = model.get_input_embeddings(), model.base_model
    for module in body.modules():
        if any(child is words for child in module.children()):
            return words if module is body else module  # type: ignore[no-any-return]
    return words  # type: ignore[no-any-return]


def _projection(model: Any) -> nn.Module | None:
    for path in PROJECTIONS:
        try:
            return model.base_model.get_submodule(path)  # type: ignore[no-any-return]
        except AttributeError:
            continue
    return None


def encoder_of(model: Any) -> nn.Module | None:
    """The layers of a model, without tables and head."""
    return getattr(model.base_model, "encoder", getattr(model.base_model, "layers", None))


def shared_parameters(generator: nn.Module, discriminator: nn.Module) -> Iterator[str]:
    """The names, in the discriminator, of what both have."""
    mine = {id(parameter) for parameter in generator.parameters()}
    for name, parameter in discriminator.named_parameters(remove_duplicate=False):
        if id(parameter) in mine:
            yield name
