"""A small recipe."""

from pathlib import Path

import pytest

RECIPE = """
[discriminator]
architecture = "electra"
[discriminator.config]
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 2
intermediate_size = 64
embedding_size = 16
max_position_embeddings = 32

[generator]
width = 0.5

[optimizer]
lr = 1e-3
warmup = 10

[run]
steps = 60
batch_size = 8
length = 32
log_every = 7
eval_every = 20
eval_batches = 2
save_every = 10
"""


@pytest.fixture(scope="session")
def recipe(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "small.toml"
    path.write_text(RECIPE)
    return path
