"""Check the fields of an architecture's configuration before anything is built.

A million layers take hours to build even without weights, and a dropout of 1 or NaN fails only in
the first step. The fields depend on the architecture, so ranges are chosen by a field's name.
"""

import re
from collections.abc import Mapping
from typing import Any

from electrify.config import shown
from electrify.errors import UserError
from electrify.recipes.ranges import Range
from electrify.recipes.schema import FieldValue

# Fields that the rest of the code depends on, so a recipe cannot set them, by reason.
FIXED = {
    "the losses use the named outputs of the networks": {
        *("return_dict", "use_return_dict", "torchscript", "output_attentions"),
        *("output_hidden_states", "sparse_prediction", "sparse_pred_ignore_index", "asm"),
    },
    "the networks are bidirectional encoders": {
        *("is_decoder", "is_encoder_decoder", "is_encoder", "causal", "add_cross_attention"),
        *("cross_attention_hidden_size", "is_folding_model"),
    },
    "the objective sets heads and labels": {
        *("num_labels", "id2label", "label2id", "problem_type", "finetuning_task"),
    },
    "output and input embeddings are always tied": {"tie_word_embeddings"},
    "weights are float32; run.precision sets the precision of matmuls": {"dtype", "torch_dtype"},
    "transformers sets it": {
        *("architectures", "model_type", "name_or_path", "transformers_version", "pruned_heads"),
        *("quantization_config", "auto_map", "per_layer_config", "is_heterogeneous"),
    },
}
LAYERS = Range(1, 512)  # building 512 layers takes about ten seconds
WIDTH = Range(1, 2**20)
LAYER_COUNT = (
    r"^(num_(hidden_|decoder_)?layers|n_layers?|num_hidden_groups|inner_group_num"
    r"|num_feedforward_networks)$"
)
# The first pattern that matches a field's name applies.
INTEGERS = {
    LAYER_COUNT: LAYERS,
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
    """Refuse fields that a recipe cannot set."""
    for reason, names in FIXED.items():
        for name in sorted(names & fields.keys()):
            raise UserError(
                f"{role}.config.{name} cannot be set: {reason}",
                got=shown(fields[name]),
                fix=f"leave {name} out of [{role}.config]",
            )


def check_values(fields: Mapping[str, Any], default: Any, prefix: str) -> None:
    """Refuse numbers with which no network can be built or trained.

    `default` is the default configuration of the architecture; `prefix` precedes a field's name.
    """
    for name, value in fields.items():
        usual = getattr(default, name, None)
        if name.startswith("_") or TOKENIZER_FIELD_PATTERN.search(name) or isinstance(usual, bool):
            continue
        allowed = _range_of(name, value, usual)
        if allowed is not None and value != usual and value not in allowed:
            raise UserError(
                f"{prefix}{name} must be {allowed}",
                got=shown(value),
                fix="use a value in that range"
                + ("" if usual is None else f"; the default of {default.model_type} is {usual}"),
            )


def check_layers(config: Any, source: str) -> None:
    """Refuse a configuration of someone else's with so many layers that building them hangs."""
    counts = {n: value for n, value in config.to_dict().items() if re.search(LAYER_COUNT, n)}
    check_values(counts, None, f"{source}: ")


def _range_of(name: str, value: Any, usual: Any) -> Range | None:
    """Return the range of a numeric field, by its name and by whether it holds integers."""
    if not isinstance(value, int | float) or isinstance(usual, str):
        return None  # transformers checks the types of its fields
    is_integer = isinstance(usual, int) or (usual is None and isinstance(value, int))
    table = INTEGERS if is_integer and "drop" not in name else FLOATS
    if isinstance(value, bool) and usual is None and "drop" not in name:
        return None  # a boolean field whose default is None
    return next(allowed for pattern, allowed in table.items() if re.search(pattern, name))
