"""Share weights between generator and discriminator.

    tied    word, position and type embeddings and their LayerNorm are shared (official)
    words   only the word embeddings are shared
    gdes    the discriminator's word embeddings are the generator's plus a trained difference, and
            send no gradient back (DeBERTa-v3's gradient-disentangled embedding sharing)
    none    nothing is shared

In every case the generator's output embeddings are its input embeddings. A shared parameter is one
object, so saving, loading, moving and wrapping cannot untie it, and an optimizer sees it once.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from electrify.recipes.schema import Sharing

# The linear map from the width of the embeddings to that of the encoder, by architecture.
PROJECTIONS = ("embeddings_project", "encoder.embedding_hidden_mapping_in", "embeddings.embed_proj")


class DisentangledEmbedding(nn.Module):
    """The generator's embeddings, which get no gradient from here, plus a trained difference."""

    def __init__(self, base: nn.Embedding) -> None:
        super().__init__()
        self._base = (base,)  # in a tuple, so that it stays a submodule of the generator only
        self.delta = nn.Parameter(torch.zeros_like(base.weight))

    def forward(self, ids: Tensor) -> Tensor:
        """Look up the sum of both matrices."""
        look_up = nn.functional.embedding
        return look_up(ids, self._base[0].weight.detach()) + look_up(ids, self.delta)

    def starts_from(self, base: nn.Embedding) -> bool:
        """Return whether this is a difference to these embeddings."""
        return self._base[0] is base

    @property
    def weight(self) -> Tensor:
        """The embedding matrix as it is exported."""
        return self._base[0].weight.detach() + self.delta

    @property
    def embedding_dim(self) -> int:
        """The width of the embeddings."""
        return self._base[0].embedding_dim


def share(generator: Any, discriminator: Any, sharing: Sharing) -> list[str]:
    """Share the weights of two networks; returns messages about those that cannot be shared."""
    unshared: list[str] = []
    if sharing.embeddings == "gdes":
        base, words = generator.get_input_embeddings(), discriminator.get_input_embeddings()
        if base.weight.shape == words.weight.shape:
            discriminator.set_input_embeddings(DisentangledEmbedding(base))
        else:
            unshared.append(_shapes("word embeddings", base.weight, words.weight))
    for part, mine, theirs in _shared_modules(generator, discriminator, sharing):
        if mine is None or theirs is None:
            unshared.append(f"{part}: one of the two networks has none")
            continue
        for match in _matches(part, mine, theirs):
            if match.theirs is None:
                unshared.append(f"{match.name}: the discriminator has none")
            elif match.theirs.shape != match.mine.shape:
                unshared.append(_shapes(match.name, match.mine, match.theirs))
            else:
                match.module.register_parameter(match.name.split(".")[-1], match.theirs)
    return unshared + tie_output(generator)


def broken_ties(generator: Any, discriminator: Any, sharing: Sharing) -> list[str]:
    """Return the names of weights that can and should be shared, and are not."""
    words, output = generator.get_input_embeddings(), generator.get_output_embeddings()
    broken = []
    if output is not None and output.weight.shape == words.weight.shape:
        broken += [] if output.weight is words.weight else ["generator's output embeddings"]
    if sharing.embeddings == "gdes":
        other = discriminator.get_input_embeddings()
        tied = isinstance(other, DisentangledEmbedding) and other.starts_from(words)
        if other.weight.shape == words.weight.shape and not tied:
            broken.append("word embeddings")
    for part, mine, theirs in _shared_modules(generator, discriminator, sharing):
        if mine is not None and theirs is not None:
            broken += [
                name
                for name, _, parameter, other in _matches(part, mine, theirs)
                if other is not None and other.shape == parameter.shape and other is not parameter
            ]
    return broken


def _shared_modules(
    generator: Any, discriminator: Any, sharing: Sharing
) -> Iterator[tuple[str, nn.Module | None, nn.Module | None]]:
    """Yield the modules to share: their name, the generator's and the discriminator's."""
    if sharing.embeddings == "tied":
        yield "embeddings", embeddings_module(generator), embeddings_module(discriminator)
    elif sharing.embeddings == "words":
        yield "word embeddings", *(net.get_input_embeddings() for net in (generator, discriminator))
    if sharing.projection:
        yield "projection", _projection(generator), _projection(discriminator)
    if sharing.encoder:
        yield "encoder", encoder_of(generator), encoder_of(discriminator)


class _Match(NamedTuple):
    """A parameter of the generator, and the discriminator's parameter of the same name."""

    name: str
    module: nn.Module
    mine: nn.Parameter
    theirs: nn.Parameter | None


def _matches(part: str, mine: nn.Module, theirs: nn.Module) -> Iterator[_Match]:
    modules = dict(theirs.named_modules())
    for path, module in mine.named_modules():
        if part == "embeddings" and isinstance(module, nn.Linear):
            continue  # a projection, which sharing.projection shares
        for name, parameter in list(module.named_parameters(recurse=False)):
            other = getattr(modules.get(path), name, None)
            found = other if isinstance(other, nn.Parameter) else None
            yield _Match(f"{part}.{path}.{name}".replace("..", "."), module, parameter, found)


def unequal_embeddings(generator: Any, discriminator: Any, sharing: Sharing) -> list[str]:
    """Return a message if sharing replaces released embeddings of the generator by others."""
    mine, theirs = (net.get_input_embeddings().weight for net in (generator, discriminator))
    if sharing.embeddings not in ("tied", "words") or mine.shape != theirs.shape or mine.is_meta:
        return []
    difference = float((mine - theirs).detach().abs().max())
    if not difference:
        return []
    return [f"word embeddings: the two differ by {difference:.2g}; the discriminator's are used"]


def tie_output(generator: Any) -> list[str]:
    """Tie output to input embeddings; returns a message if that is impossible."""
    words, output = generator.get_input_embeddings(), generator.get_output_embeddings()
    if output is None:
        return ["output embeddings: the architecture does not expose them"]
    if output.weight.shape != words.weight.shape:
        return [_shapes("output embeddings", output.weight, words.weight)]
    output.weight = words.weight
    generator.config.tie_word_embeddings = True  # so that from_pretrained ties them again
    return []


def _shapes(name: str, mine: Tensor, theirs: Tensor) -> str:
    return f"{name}: {tuple(mine.shape)} and {tuple(theirs.shape)}"


def embeddings_module(model: Any) -> nn.Module:
    """Return the module that holds the word embeddings and those next to them."""
    words, encoder = model.get_input_embeddings(), model.base_model
    for module in encoder.modules():
        if any(child is words for child in module.children()):
            return words if module is encoder else module  # type: ignore[no-any-return]
    return words  # type: ignore[no-any-return]


def _projection(model: Any) -> nn.Module | None:
    for path in PROJECTIONS:
        try:
            return model.base_model.get_submodule(path)  # type: ignore[no-any-return]
        except AttributeError:
            continue
    return None


def encoder_of(model: Any) -> nn.Module | None:
    """Return the layers of a model, without embeddings and head."""
    return getattr(model.base_model, "encoder", getattr(model.base_model, "layers", None))


def shared_parameters(generator: nn.Module, discriminator: nn.Module) -> Iterator[str]:
    """Yield the names, in the discriminator, of parameters that both networks have."""
    mine = {id(parameter) for parameter in generator.parameters()}
    for name, parameter in discriminator.named_parameters(remove_duplicate=False):
        if id(parameter) in mine:
            yield name
