"""Small pairs and runs, made without training."""

from pathlib import Path

import torch
from tests.conftest import WORDS
from tests.training.conftest import RECIPE
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from electrify import config
from electrify.models.export import export_networks
from electrify.models.pair import Vocabulary, build_pair
from electrify.objectives.objective import build_objective
from electrify.recipes.schema import Discriminator, Recipe, Run
from electrify.tokens.tokenizer import (
    LoadedTokenizer,
    from_vocabulary,
    load_tokenizer,
    with_special_tokens,
)
from electrify.training import checkpoint
from electrify.training.data import vocabulary_of
from electrify.training.folder import RunFolder
from electrify.training.options import Pretrain
from electrify.training.state import model_tensors

LONGEST = 32
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def word_pieces() -> LoadedTokenizer:
    """Return a lower-case WordPiece tokenizer with syllables and half of the words."""
    syllables = sorted({w[:2] for w in WORDS} | {f"##{w[2:]}" for w in WORDS})
    letters = [*"abcdefghijklmnopqrstuvwxyz<>=()'\"/.[]", "##k"]
    return from_vocabulary([*SPECIAL, *syllables, *WORDS[::2], *letters])


def bytes_pairs() -> LoadedTokenizer:
    """Return a byte-level BPE tokenizer, in which a character can be several tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([" ".join(WORDS)], trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    names = {name.strip("[]").lower(): name for name in SPECIAL}
    return with_special_tokens(backend, names)


KINDS = {"electra": word_pieces, "modernbert": bytes_pairs}


def export_pair(architecture: str, out: Path, longest: int = LONGEST) -> Path:
    """Export networks with random weights, large enough for varied predictions."""
    tokenizer = KINDS[architecture]()
    fields = {**SIZES, "intermediate_size": 64, "max_position_embeddings": 64}
    vocabulary: Vocabulary = vocabulary_of(tokenizer)
    recipe = Recipe(Discriminator(architecture, fields), run=Run(init="huggingface"))
    pair = build_pair(recipe, vocabulary)
    networks = {"discriminator": pair.discriminator, "generator": pair.generator}
    torch.manual_seed(1)
    with torch.no_grad():
        for network in networks.values():
            for parameter in network.parameters():
                parameter += 0.3 * torch.randn_like(parameter)
    export_networks(networks, dict.fromkeys(networks, "a model\n"), tokenizer, out, {}, longest)
    return out


def make_run(shards: Path, out: Path, kind: str = "rtd") -> Path:
    """Make a run of the small recipe, stopped at step 7, with perturbed initial weights."""
    toml = out.with_name(f"{out.name}.toml")
    text = RECIPE if kind == "rtd" else RECIPE.replace("[generator]\nwidth = 0.5\n", "")
    toml.write_text(f'{text}\n[objective]\nkind = "{kind}"\n')
    recipe, tokenizer = config.read_settings(Recipe, toml), load_tokenizer(shards / "tokenizer")
    objective = build_objective(recipe, vocabulary_of(tokenizer))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    folder = RunFolder(out)
    settings = Pretrain(recipe=recipe, data=shards, out=out, budget="steps")
    folder.start_or_resume(settings, recipe, tokenizer, objective.networks, "bf16", print)
    snapshot = checkpoint.snapshot(7, model_tensors(objective), {}, {})
    checkpoint.write(folder.checkpoints, snapshot, run=folder.fingerprints(7))
    return out
