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
from typing import Any

import torch
from torch import Tensor, nn

from electrify.recipe import Sharing

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
    words = discriminator.get_input_embeddings()
    if sharing.embeddings == "tied":
        apart += _tie(_home(generator), _home(discriminator), "embeddings")
    elif sharing.embeddings == "words":
        apart += _tie(generator.get_input_embeddings(), words, "word table")
    elif sharing.embeddings == "gdes":
        base = generator.get_input_embeddings()
        if base.weight.shape == words.weight.shape:
            discriminator.set_input_embeddings(DisentangledEmbedding(base))
        else:
            apart.append(_shapes("word table", base.weight, words.weight))
    if sharing.projection:
        apart += _tie(_projection(generator), _projection(discriminator), "projection")
    if sharing.encoder:
        apart += _tie(_encoder(generator), _encoder(discriminator), "encoder")
    return apart + _tie_output(generator)


def _tie(mine: nn.Module | None, theirs: nn.Module | None, what: str) -> list[str]:
    """Put parameters of `theirs` in the place of those of `mine` with the same name and shape."""
    if mine is None or theirs is None:
        return [f"{what}: one of the two has none"]
    apart = []
    modules = dict(theirs.named_modules())
    for path, module in mine.named_modules():
        if what == "embeddings" and isinstance(module, nn.Linear):
            continue  # a projection, which has a switch of its own
        for name, parameter in list(module.named_parameters(recurse=False)):
            place = f"{what}.{path}.{name}".replace("..", ".")
            other = getattr(modules.get(path), name, None)
            if not isinstance(other, nn.Parameter):
                apart.append(f"{place}: the discriminator has none")
            elif other.shape != parameter.shape:
                apart.append(_shapes(place, parameter, other))
            else:
                module.register_parameter(name, other)
    return apart


def _tie_output(generator: Any) -> list[str]:
    words, output = generator.get_input_embeddings(), generator.get_output_embeddings()
    if output is None:
        return ["output table: the architecture does not say where it is"]
    if output.weight.shape != words.weight.shape:
        return [_shapes("output table", output.weight, words.weight)]
    output.weight = words.weight
    return []


def _shapes(what: str, mine: Tensor, theirs: Tensor) -> str:
    return f"{what}: {tuple(mine.shape)} and {tuple(theirs.shape)}"


def _home(model: Any) -> nn.Module:
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


def _encoder(model: Any) -> nn.Module | None:
    return getattr(model.base_model, "encoder", getattr(model.base_model, "layers", None))


def shared_parameters(generator: nn.Module, discriminator: nn.Module) -> Iterator[str]:
    """The names, in the discriminator, of what both have."""
    mine = {id(parameter) for parameter in generator.parameters()}
    for name, parameter in discriminator.named_parameters(remove_duplicate=False):
        if id(parameter) in mine:
            yield name
