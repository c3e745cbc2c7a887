"""Rates that shrink from the head down to the tables, for fine-tuning.

With decay d and n layers the rate of a part is multiplied by d to some power. `official` is what
google-research/electra does: n + 2 for the tables and the projection, n + 1 - i for layer i (so 2
for the last), 0 for the head; a pooler that was removed left the gap (issue 51 there). `intended`
closes it: n + 1 for the tables, n - i for layer i.
"""

import re
from collections.abc import Callable
from typing import Any, Literal

from electrify.errors import UserError

LayerDecayKind = Literal["official", "intended"]
GAP = {"official": 1, "intended": 0}

# XLM has no list of layers but one of each part of them.
_LAYER = re.compile(r"\.(?:layers?|h|blocks?|attentions|ffns|layer_norm[12])\.(\d+)\.")
_TABLES = re.compile(r"embed|norm_emb")


def exponent(name: str, body: str, layers: int, kind: LayerDecayKind) -> int:
    """The power for a parameter, by its name; `body` is the name of the model without its head.

    >>> [exponent(f"electra.{part}.weight", "electra", 12, "official") for part in
    ...  ("embeddings.word_embeddings", "embeddings_project", "encoder.layer.0.output.dense",
    ...   "encoder.layer.11.output.dense")]
    [14, 14, 13, 2]
    """
    if not name.startswith(f"{body}."):
        return 0
    found = _LAYER.search(name)
    if found:
        return layers - int(found[1]) + GAP[kind]
    if _TABLES.search(name):
        return layers + 1 + GAP[kind]
    return 1 + GAP[kind]  # what follows the last layer: a final norm


def layer_scale(model: Any, decay: float, kind: LayerDecayKind) -> Callable[[str], float]:
    """For `optim.parameter_groups`: the share of the rate that each parameter of a model gets."""
    if not 0 < decay <= 1:
        raise UserError("layer-wise decay is not a share", got=f"{decay}", fix="give 0.8, 0.9 or 1")
    body, layers = model.base_model_prefix, int(model.config.num_hidden_layers)
    return lambda name: decay ** exponent(name, body, layers, kind)
