"""`import electrify`: the commands as functions, and objectives in other training loops."""

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import electrify
from electrify.batches.batch import Batch
from electrify.errors import UserError

SMALL = {
    "discriminator.config": {
        "hidden_size": 16,
        "embedding_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 32,
    },
    "warmup": 2,
}


def test_import_is_lazy():
    code = (
        "import sys, electrify; dir(electrify); print(sorted({'torch', 'numpy'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    code = "import sys, electrify; electrify.prepare; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_listed_name_exists_with_a_docstring_and_a_signature():
    assert set(electrify.__all__) <= set(dir(electrify))
    for name in electrify.__all__:
        attribute = getattr(electrify, name)
        assert attribute.__doc__, name
        assert inspect.signature(attribute).parameters, name
    with pytest.raises(AttributeError, match="no attribute 'pretrian'"):
        electrify.pretrian  # noqa: B018


def test_from_documents_to_an_export(docs, vocab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    manifest = electrify.prepare(
        docs=[docs], tokenizer=str(vocab), length=32, validation=0.1, out="shards"
    )
    assert manifest["splits"]["train"]["examples"] > 0
    checkpoints: list[Path] = []
    settings = {"device": "cpu", "batch_size": 8, "length": 32, "eval_every": 4, "eval_batches": 1}
    done = electrify.pretrain(
        "electra-small",
        data="shards",
        out="run",
        steps=8,
        checkpoint_fn=checkpoints.append,
        overrides=SMALL,
        **settings,
    )
    assert (done.step, done.finished, done.run) == (8, True, Path("run"))
    assert done.metrics["generator_loss"] > 0
    assert [path.name for path in checkpoints] == ["step-00000000", "step-00000008"]
    folders = electrify.export(run="run", out="model")
    assert set(folders) == {"discriminator", "generator", "encoder"}
    assert (folders["encoder"] / "model.safetensors").is_file()
    assert electrify.plan("electra-small", steps=8, length=32, overrides=SMALL)["steps"] == 8


def test_a_script_needs_no_main_guard_for_workers(tmp_path):
    """Spawned workers import the main module, which would start the work again in this script."""
    (tmp_path / "text").mkdir()
    for number in range(4):
        (tmp_path / "text" / f"{number}.txt").write_text("kata lodi mifu. " * 40)
    script = tmp_path / "script.py"
    script.write_text(
        "import electrify\n"
        "made = electrify.corpus('text', 'text', out='docs', workers='2')\n"
        "print(made['documents'])\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "4"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stpes": 9}, "did you mean steps"),
        ({"micro_bach": 9}, "did you mean micro_batch"),
        ({"optimiser": {"lr": 1}}, "did you mean optimizer"),
    ],
)
def test_an_unknown_keyword_is_refused_with_the_closest_match(settings, message, tmp_path):
    with pytest.raises(UserError, match=message):
        electrify.pretrain("tiny", data=tmp_path, out=tmp_path / "run", **settings)


@pytest.fixture(scope="module")
def pair():
    """A generator, a discriminator, a tokenizer and examples, made with transformers only."""
    from transformers import (
        BertTokenizer,
        ElectraConfig,
        ElectraForMaskedLM,
        ElectraForPreTraining,
    )

    from tests.conftest import WORDS

    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(WORDS)]
    tokenizer = BertTokenizer(vocab={token: number for number, token in enumerate(tokens)})
    fields = {**SMALL["discriminator.config"], "vocab_size": len(tokens)}
    torch.manual_seed(0)
    generator = ElectraForMaskedLM(ElectraConfig(**fields))
    discriminator = ElectraForPreTraining(ElectraConfig(**fields))
    discriminator.electra.embeddings = generator.electra.embeddings
    examples = [tokenizer(" ".join(WORDS[i : i + 8])) for i in range(24)]
    return generator, discriminator, tokenizer, examples


def test_an_objective_in_a_plain_training_loop(pair):
    generator, discriminator, tokenizer, examples = pair
    model = electrify.ReplacedTokenDetection(generator, discriminator)
    collate = electrify.MaskingCollator(tokenizer, length=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        for fields in DataLoader(examples, batch_size=8, shuffle=True, collate_fn=collate):
            batch = Batch(**fields)
            loss, sums = model(batch, batch.totals())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(sums["generator_loss"]))
    assert sum(losses[-9:]) < 0.97 * sum(losses[:9])


def test_an_objective_with_the_trainer_of_transformers(pair, tmp_path):
    from transformers import Trainer, TrainingArguments

    generator, discriminator, tokenizer, examples = pair
    model = electrify.ReplacedTokenDetection(generator, discriminator)
    before = discriminator.discriminator_predictions.dense.weight.detach().clone()
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=6,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        logging_steps=2,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        remove_unused_columns=False,
        gradient_accumulation_steps=2,
    )
    trainer = Trainer(
        electrify.WithDictOutput(model),
        arguments,
        train_dataset=examples,
        data_collator=electrify.MaskingCollator(tokenizer, length=16),
    )
    done = trainer.train()
    assert done.global_step == 6
    assert trainer.evaluate(examples)["eval_loss"] > 0
    assert 0 < done.training_loss < 100
    assert (discriminator.discriminator_predictions.dense.weight != before).any()
    discriminator.save_pretrained(tmp_path / "discriminator")
    assert (tmp_path / "discriminator" / "model.safetensors").is_file()


def test_padding_is_never_masked_nor_counted(pair):
    *_, tokenizer, _ = pair
    collate = electrify.MaskingCollator(tokenizer)
    plain, padded = (
        tokenizer(" ".join(["kata"] * 5), **options)
        for options in ({}, {"padding": "max_length", "max_length": 32})
    )
    for example in (plain, padded):
        batch = Batch(**collate([example]))
        assert batch.attention_BL.sum() == len(plain["input_ids"])
        assert batch.positions_BN.max() < len(plain["input_ids"])
    small = {"input_ids": [5] * 300, "attention_mask": np.ones(300, np.uint8)}
    assert Batch(**collate([small])).attention_BL.shape == (1, 300), "no overflow"
    left_padded = {"input_ids": [0, 2, 5, 3], "attention_mask": [0, 1, 1, 1]}
    with pytest.raises(UserError, match="padded at the end"):
        collate([left_padded])


def test_a_tokenizer_without_a_mask_token_is_refused(pair):
    class NoMask:
        pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id = 0, 1, 2, 3, None

    with pytest.raises(UserError, match="lacks special tokens") as caught:
        electrify.MaskingCollator(NoMask())
    assert "mask" in caught.value.got


def test_a_setting_of_the_wrong_type_is_refused(tmp_path):
    for wrong in ({"on_save_error": "abort"}, {"track": "wandb"}, {"micro_batch": "many"}):
        with pytest.raises(UserError, match="bad value"):
            electrify.pretrain("tiny", data=tmp_path, out=tmp_path / "run", **wrong)
