"""What the fields of an architecture's configuration may be, checked before anything is built.

A million layers take hours to build even without weights, and a dropout of 1 or NaN shows only in
the first step. Which fields there are the architecture says, so ranges go by what names say.
"""

import re
from collections.abc import Mapping
from typing import Any

from electrify.config import shown
from electrify.errors import UserError
from electrify.recipes.ranges import Range
from electrify.recipes.schema import FieldValue

# By reason: fields that the rest of the code depends on, so a recipe cannot set them.
FIXED = {
    "losses read the named outputs of the networks": {
        *("return_dict", "use_return_dict", "torchscript", "output_attentions"),
        *("output_hidden_states", "sparse_prediction", "sparse_pred_ignore_index", "asm"),
    },
    "an encoder attends to both sides and to itself alone": {
        *("is_decoder", "is_encoder_decoder", "is_encoder", "causal", "add_cross_attention"),
        *("cross_attention_hidden_size", "is_folding_model"),
    },
    "heads and labels come from the objective": {
        *("num_labels", "id2label", "label2id", "problem_type", "finetuning_task"),
    },
    "output embeddings are always the input embeddings": {"tie_word_embeddings"},
    "weights are float32, and run.precision sets the rest": {"dtype", "torch_dtype"},
    "transformers fills it in": {
        *("architectures", "model_type", "name_or_path", "transformers_version", "pruned_heads"),
        *("quantization_config", "auto_map", "per_layer_config", "is_heterogeneous"),
    },
}
LAYERS = Range(1, 512)  # building as many takes about ten seconds
WIDTH = Range(1, 2**20)
# The first pattern that is found in a field's name counts.
INTEGERS = {
    r"^(num_(hidden|decoder)_layers|n_layers|num_hidden_groups|inner_group_num)$": LAYERS,
    r"^num_feedforward_networks$": LAYERS,
    r"^(num_(attention|key_value)_heads|n_heads?)$": Range(1, 4096),
    r"^max_(2d_)?position_embeddings$": Range(1, 2**17),
    r"^(hidden|intermediate|(input_|output_)?embedding|true_hidden|intra_bottleneck)_size$": WIDTH,
    r"^(d_model|d_inner|d_head|dim|emb_dim|hidden_dim|head_dim|ffn_dim)$": WIDTH,
    r"": Range(-(2**20), 2**20),
}
FLOATS = {
    r"drop": Range(0, 1, below=True),
    r"_eps$": Range(1e-30, 1),
    r"(^init|_init_?|initializer).*(std|range|factor)": Range(0, 100),
    r"theta": Range(0, 1e12, above=True),
    r"": Range(-1e12, 1e12),
}
TOKENIZER_FIELD_PATTERN = re.compile("_token_id$|^vocab_size$")


def check_names(fields: Mapping[str, FieldValue], role: str) -> None:
    """Refuse fields that are not a recipe's to set."""
    for reason, names in FIXED.items():
        for name in sorted(names & fields.keys()):
            raise UserError(
                f"{role}.config.{name} cannot be set: {reason}",
                got=shown(fields[name]),
                fix=f"leave {name} out of [{role}.config]",
            )


def check_values(fields: Mapping[str, Any], default: Any, role: str) -> None:
    """Refuse numbers that no network can be built from, or none that trains.

    `default` is the configuration of the architecture as it comes.
    """
    for name, value in fields.items():
        usual = getattr(default, name, None)
        if name.startswith("_") or TOKENIZER_FIELD_PATTERN.search(name) or isinstance(usual, bool):
            continue
        allowed = _range_of(name, value, usual)
        if allowed is not None and value != usual and value not in allowed:
            raise UserError(
                f"{role}.config.{name} is out of range",
                got=shown(value),
                fix=f"{default.model_type} takes {allowed}"
                + ("" if usual is None else f"; its default is {usual}"),
            )


def _range_of(name: str, value: Any, usual: Any) -> Range | None:
    """The range of a numeric field, by its name and by whether numbers there are whole."""
    if not isinstance(value, int | float) or isinstance(usual, str):
        return None  # transformers knows the types of its fields
    whole = isinstance(usual, int) or (usual is None and isinstance(value, int))
    table = INTEGERS if whole and "drop" not in name else FLOATS
    if isinstance(value, bool) and usual is None and "drop" not in name:
        return None  # a switch whose default is None
    return next(allowed for pattern, allowed in table.items() if re.search(pattern, name))
