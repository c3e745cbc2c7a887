"""Loading and tokenizing for any encoder: official truncation, the tokenizer's special tokens."""

import json
from pathlib import Path

import pytest

from electrify.errors import UserError
from electrify.finetuning.encoder import (
    encode,
    fingerprint,
    load_backbone,
    open_encoder,
    truncated_lengths,
)

GOLDEN = json.loads((Path(__file__).parent.parent / "golden/finetune.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["truncate_pair"]["cases"], ids=lambda c: str(c["in"]))
def test_lengths_are_truncated_as_officially(case):
    assert list(truncated_lengths(*case["in"], 128 - 3)) == case["out"]


def test_pairs_have_special_tokens_and_token_types(encoder_folder):
    encoder = open_encoder(str(encoder_folder))
    [one] = encode(encoder, ["kata loso"], None, 16)
    assert one.tokens[0] == "[CLS]"
    assert one.tokens[-1] == "[SEP]"
    assert set(one.type_ids) == {0}
    [pair] = encode(encoder, ["kata " * 20], ["loso " * 20], 16)
    assert len(pair.ids) == 16
    assert pair.tokens.count("[SEP]") == 2
    first = pair.type_ids.index(1) - 2
    assert (first, len(pair.ids) - first - 3) == (7, 6)


def test_special_tokens_in_a_text_are_text(encoder_folder):
    from electrify.finetuning.squad.windows import tokens_with_offsets
    from electrify.tokens import tokenizer as tokenizers

    text = "kata [MASK] loso [SEP] mita"
    encoder, ours = open_encoder(str(encoder_folder)), tokenizers.load_tokenizer(encoder_folder)
    wanted = ours.backend.encode(text, add_special_tokens=False).ids
    [one], [pair] = encode(encoder, [text], None, 64), encode(encoder, [text], [text], 64)
    assert one.ids[1:-1] == wanted
    assert pair.ids[1:-1] == [*wanted, encoder.tokenizer.sep_token_id, *wanted]
    assert list(tokens_with_offsets(encoder, [text])[0].ids) == wanted
    assert not {encoder.tokenizer.mask_token_id, encoder.tokenizer.sep_token_id} & set(wanted)


def test_the_pooler_is_removed(encoder_folder):
    assert load_backbone(str(encoder_folder)).pooler is None


def test_the_error_for_a_folder_without_a_model_suggests_another(tmp_path):
    with pytest.raises(UserError, match=r"there is no folder .*nothing"):
        open_encoder(str(tmp_path / "nothing"))
    (tmp_path / "discriminator").mkdir()
    (tmp_path / "discriminator" / "config.json").touch()
    with pytest.raises(UserError, match=r"did you mean .*discriminator\?"):
        open_encoder(str(tmp_path))


def test_the_fingerprint_depends_on_the_weights(encoder_folder, tmp_path):
    import shutil

    copy = shutil.copytree(encoder_folder, tmp_path / "copy")
    assert fingerprint(str(copy)) == fingerprint(str(encoder_folder))
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "model.safetensors").write_bytes(bytes(data))
    assert fingerprint(str(copy)) != fingerprint(str(encoder_folder))
    assert fingerprint("some/name") == "some/name"


def test_an_encoder_with_missing_weights_is_refused(encoder_folder, tmp_path):
    import json
    import shutil

    from safetensors.torch import load_file, save_file

    wider = shutil.copytree(encoder_folder, tmp_path / "wider")
    config = json.loads((wider / "config.json").read_text())
    (wider / "config.json").write_text(json.dumps(config | {"vocab_size": 999}))
    with pytest.raises(UserError, match="lacks weights of its encoder"):
        load_backbone(str(wider))
    renamed = shutil.copytree(encoder_folder, tmp_path / "renamed")
    tensors = load_file(renamed / "model.safetensors")
    save_file(
        {f"other.{name}": tensor for name, tensor in tensors.items()},
        renamed / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(UserError, match="lacks weights of its encoder"):
        load_backbone(str(renamed))


def test_the_fingerprint_depends_on_the_tokenizer(encoder_folder, tmp_path):
    import shutil

    copy = shutil.copytree(encoder_folder, tmp_path / "copy")
    path = copy / "tokenizer.json"
    path.write_text(path.read_text().replace('"lowercase": true', '"lowercase": false'))
    assert fingerprint(str(copy)) != fingerprint(str(encoder_folder))
