"""Untrusted model folders: their code is never run, and damage ends in a helpful error."""

import json
import pickle
import re
import shutil
from logging import getLogger
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tests.models.tiny import VOCABULARY, tiny_recipe, tiny_tokenizer
from transformers import AutoModel, AutoModelForTokenClassification, BertForTokenClassification

from electrify.errors import UserError
from electrify.finetuning.encoder import load_backbone, load_network, open_encoder
from electrify.models.export import encoder_alone, export_networks
from electrify.models.pair import build_pair
from electrify.models.pretrained import ALLOW_PICKLES, open_config, open_model, open_tokenizer

SOURCE = Path(__file__).parents[2] / "src"
EVIL = """
from pathlib import Path
Path({witness!r}).write_text("ran")
from transformers import BertConfig, BertModel, BertTokenizer
class EvilConfig(BertConfig): model_type = "evil"
class Evil(BertModel): config_class = EvilConfig
class EvilTokenizer(BertTokenizer): pass
"""


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    network = encoder_alone(build_pair(tiny_recipe("bert"), VOCABULARY).discriminator)
    out = tmp_path_factory.mktemp("export")
    export_networks(
        {"encoder": network}, {"encoder": ""}, tiny_tokenizer(), out / "out", {}, longest=64
    )
    return out / "out" / "encoder"


@pytest.fixture
def folder(good, tmp_path):
    return shutil.copytree(good, tmp_path / "model")


def edit(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def load_all(folder):
    """Load what fine-tuning loads."""
    open_encoder(str(folder))
    load_backbone(str(folder))


def truncate_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def corrupt_header(folder):
    path = folder / "model.safetensors"
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])


def remove_added_tokens(folder):
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    del content["added_tokens"]
    path.write_text(json.dumps(content))


def config(**fields):
    return lambda folder: edit(folder / "config.json", **fields)


DAMAGE = {
    "truncated weights": (truncate_weights, "weights of .* cannot be loaded"),
    "a corrupt header": (corrupt_header, "weights of .* cannot be loaded"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "weights of .* cannot be loaded"),
    "padding id outside the vocabulary": (config(pad_token_id=999), "cannot be loaded"),
    "no positions": (config(max_position_embeddings=None), "cannot load this model"),
    "positions are text": (config(max_position_embeddings="x"), "cannot load this model"),
    "an unknown data type": (config(dtype="float8_x"), "cannot load this|cannot be loaded"),
    "quantised": (
        config(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}),
        "quantised|cannot load this|cannot be loaded",
    ),
    "a kernel from the Hub": (config(attn_implementation="someone/kernel"), "kernel from the Hub"),
    "too many layers": (config(num_hidden_layers=65_536), "num_hidden_layers must be between"),
    "layers are text": (config(num_hidden_layers="many"), "cannot load this|cannot be loaded"),
    "another architecture": (
        config(model_type="gpt2"),
        "lacks weights|cannot be loaded|cannot load this",
    ),
    "configuration is a list": (lambda f: (f / "config.json").write_text("[]"), "cannot load this"),
    "configuration is not JSON": (
        lambda f: (f / "config.json").write_bytes(b"\xff{"),
        "cannot load this",
    ),
    "no added tokens": (remove_added_tokens, "cannot load the tokenizer"),
    "tokenizer is not JSON": (
        lambda f: (f / "tokenizer.json").write_text("{"),
        "cannot load the tokenizer",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_an_error_that_helps(what, folder):
    damage, message = DAMAGE[what]
    damage(folder)
    with pytest.raises(UserError, match=message) as error:
        load_all(folder)
    assert error.value.got
    assert "\n" not in error.value.got
    assert error.value.fix


@pytest.mark.parametrize("where", ["config.json", "tokenizer_config.json", "both"])
def test_code_in_a_folder_is_never_run(where, folder, tmp_path, nursery):
    """Run the command and answer yes to every prompt."""
    witness = tmp_path / "witness"
    (folder / "evil.py").write_text(EVIL.format(witness=str(witness)))
    if where != "tokenizer_config.json":
        models = {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.Evil"}
        edit(folder / "config.json", model_type="evil", auto_map=models)
    if where != "config.json":
        edit(
            folder / "tokenizer_config.json",
            tokenizer_class="EvilTokenizer",
            auto_map={"AutoTokenizer": ["evil.EvilTokenizer", None]},
        )
    for name in ("train", "dev"):
        (tmp_path / f"{name}.csv").write_text("text,label\nw1 w2,a\nw3 w4,b\n" * 8)
    files = ("--train", "train.csv", "--dev", "dev.csv", "--out", "out", "--epochs", "1")
    done = nursery.completed("finetune", folder, *files, input="y\n" * 100, cwd=tmp_path)
    assert not witness.exists()
    assert "[y/N]" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if where == "tokenizer_config.json":  # tokenizer.json needs no code, so it is used
        assert done.returncode in (0, 2), done.stderr
    else:
        assert done.returncode == 2, done.stderr
        assert "never runs" in done.stderr


class Evil:
    def __init__(self, witness):
        self.witness = witness

    def __reduce__(self):
        return Path.touch, (Path(self.witness),)


@pytest.mark.parametrize("allowed", [False, True])
def test_pickles_are_refused_unless_somebody_insists(allowed, folder, tmp_path, monkeypatch):
    if allowed:
        monkeypatch.setenv(ALLOW_PICKLES, "1")
    network, _ = open_model(AutoModel, str(folder))
    (folder / "model.safetensors").unlink()
    torch.save(network.state_dict(), folder / "pytorch_model.bin")
    if allowed:
        assert torch.equal(
            load_backbone(str(folder)).embeddings.word_embeddings.weight,
            network.embeddings.word_embeddings.weight,
        )
        witness = tmp_path / "witness"
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(str(witness))))
        with pytest.raises(UserError, match="cannot be loaded"):  # only tensors are loaded
            load_backbone(str(folder))
        assert not witness.exists()
    else:
        with pytest.raises(UserError, match="pickle") as error:
            load_backbone(str(folder))
        assert ALLOW_PICKLES in error.value.fix


@pytest.mark.parametrize(
    "architectures", [["BertForTokenClassification"], ["Unknown"], [3], {"a": 1}]
)
def test_the_advice_for_pickles_works(architectures, folder, tmp_path):
    """It also saves the tokenizer, and the head if the architecture is known."""
    config = open_config(str(folder))
    config.num_labels = 5
    network = BertForTokenClassification(config)
    network.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(network.state_dict(), folder / "pytorch_model.bin")
    edit(folder / "config.json", architectures=architectures)
    with pytest.raises(UserError, match="pickle") as error:
        load_backbone(str(folder))
    advice = error.value.fix.split("`")[1]
    new = tmp_path / "new"
    exec(advice.replace("OLD", str(folder)).replace("NEW", str(new)), {})
    load_all(new)
    if architectures == ["BertForTokenClassification"]:
        again = load_network(AutoModelForTokenClassification, str(new))
        assert torch.equal(again.classifier.weight, network.classifier.weight)


@pytest.mark.parametrize("load", [open_config, open_tokenizer])
@pytest.mark.parametrize("name", ["/no/such/model", "./model", "run/model/encoder", "../a/b"])
def test_a_missing_folder_is_not_looked_up_on_the_hub(load, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", None)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", None)
    with pytest.raises(UserError) as error:
        load(name)
    assert error.value.what == f"there is no folder {name}"


@pytest.mark.parametrize("name", ["someone/model", "model"])
def test_a_missing_folder_without_the_hub_is_a_clear_error(name, tmp_path, nursery):
    """The client's retries, which it logs, would take half a minute each."""
    files = ("--train", "t.csv", "--dev", "t.csv", "--out", "out")
    (tmp_path / "t.csv").write_text("text,label\nw1 w2,a\nw3 w4,b\n" * 8)
    done = nursery.completed("finetune", name, *files, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        f"error: there is no folder {name}, and the Hugging Face Hub cannot be reached"
    )
    assert len(done.stderr.splitlines()) == 3


def test_the_clients_log_is_silent_while_a_model_is_opened(monkeypatch, caplog):
    def unreachable(*_, **__):
        getLogger("huggingface_hub.utils._http").warning("thrown while requesting HEAD")
        raise OSError("We couldn't connect to the Hub")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", unreachable)
    with pytest.raises(UserError, match="Hub cannot be reached"):
        open_config("someone/model")
    assert "HEAD" not in caplog.text


def test_a_good_folder_opens(folder):
    load_all(folder)
    assert open_config(str(folder)).model_type == "bert"
    assert open_tokenizer(str(folder)).pad_token == "[PAD]"


def test_only_one_module_loads_models():
    found = [
        path.relative_to(SOURCE / "electrify").as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"\.from_pretrained\($|\.from_pretrained\([^\"O]", path.read_text(), re.M)
    ]
    assert found == ["models/pretrained.py"]


@pytest.mark.parametrize("name", ["../outside.safetensors", "/outside.safetensors", "a/b", "..", 3])
def test_an_index_names_files_of_its_folder_only(name, folder):
    shutil.copy(folder / "model.safetensors", folder.parent / "outside.safetensors")
    weights = dict.fromkeys(load_file(folder / "model.safetensors"), name)
    (folder / "model.safetensors").unlink()
    index = {"metadata": {"total_size": 1}, "weight_map": weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="outside the folder"):
        load_backbone(str(folder))
    (folder / "sub").mkdir()
    (folder / "model.safetensors.index.json").rename(folder / "sub/model.safetensors.index.json")
    config = json.loads((folder / "config.json").read_text())
    named = {"transformers_weights": "sub/model.safetensors.index.json"}
    (folder / "config.json").write_text(json.dumps({**config, **named}))
    with pytest.raises(UserError, match="outside the folder"):
        load_backbone(str(folder))
    (folder / "config.json").write_text(json.dumps(config))
    index["weight_map"] = dict.fromkeys(weights, "part.safetensors")
    shutil.copy(folder.parent / "outside.safetensors", folder / "part.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    load_backbone(str(folder))
