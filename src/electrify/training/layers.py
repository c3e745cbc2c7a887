"""Layer-wise learning rate decay for fine-tuning: the lower the layer, the lower its rate.

With decay d and n layers the rate of a layer is multiplied by a power of d. `official` is what
google-research/electra does: n + 2 for the embeddings and their projection, n + 1 - i for layer i
(so 2 for the last), 0 for the head; the gap of 1 comes from a pooler that was removed (issue 51
there). `intended` closes it: n + 1 for the embeddings, n - i for layer i.
"""

import re
from collections.abc import Callable
from typing import Any, Literal

from electrify.errors import UserError

LayerDecayKind = Literal["official", "intended"]
GAP = {"official": 1, "intended": 0}

# XLM has no list of layers, but one list for each part of a layer.
_LAYER = re.compile(r"\.(?:layers?|h|blocks?|attentions|ffns|layer_norm[12])\.(\d+)\.")
_EMBEDDINGS = re.compile(r"embed|norm_emb")


def exponent(name: str, encoder: str, layers: int, kind: LayerDecayKind) -> int:
    """Return the power of the decay for a parameter name; `encoder` is the prefix of the encoder.

    >>> [exponent(f"electra.{part}.weight", "electra", 12, "official") for part in
    ...  ("embeddings.word_embeddings", "embeddings_project", "encoder.layer.0.output.dense",
    ...   "encoder.layer.11.output.dense")]
    [14, 14, 13, 2]
    """
    if not name.startswith(f"{encoder}."):
        return 0
    if match := _LAYER.search(name):
        return layers - int(match[1]) + GAP[kind]
    if _EMBEDDINGS.search(name):
        return layers + 1 + GAP[kind]
    return 1 + GAP[kind]  # a final norm, after the last layer


def layer_scale(model: Any, decay: float, kind: LayerDecayKind) -> Callable[[str], float]:
    """Return a function from a parameter's name to the factor of its learning rate."""
    if not 0 < decay <= 1:
        raise UserError(
            "the layer-wise decay must be above 0 and at most 1",
            got=f"{decay}",
            fix="use 0.8 or 0.9; 1 disables it",
        )
    encoder, layers = model.base_model_prefix, int(model.config.num_hidden_layers)
    return lambda name: decay ** exponent(name, encoder, layers, kind)
