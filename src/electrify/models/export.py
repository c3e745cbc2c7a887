"""Export networks as folders that transformers loads without electrify.

    OUT/discriminator    ElectraForPreTraining, or the architecture's token-classification class
    OUT/generator        the architecture's masked-LM class
    OUT/model            in place of both, for the masked-LM baseline
    OUT/encoder          the backbone of the discriminator or of the baseline, without a head

Each holds config.json, model.safetensors, the tokenizer and a model card. Every network is loaded
again and must give the same outputs before the folder counts as finished.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from electrify.errors import UserError
from electrify.models.inputs import takes_token_types
from electrify.models.pretrained import open_model
from electrify.models.sharing import DisentangledEmbedding
from electrify.storage.build import Build, committed_file
from electrify.storage.commit import describe_damage, read_manifest, write_json
from electrify.tokens import tokenizer as tokenizers
from electrify.tokens.tokenizer import LoadedTokenizer

ENCODER_ROLE = "encoder"
EXPORT_TOLERANCE = 1e-5
PROBE_LENGTH = 16


def export_networks(
    networks: Mapping[str, Any],
    cards: Mapping[str, str],
    tokenizer: LoadedTokenizer,
    out: Path,
    identity: dict[str, Any],
    longest: int,
) -> dict[str, Any]:
    """Write every network with its card and the tokenizer; returns the folder's manifest."""
    with Build(out, "model", identity, files=[f"{role}/*" for role in networks]) as build:
        if build.finished:
            return read_manifest(out, "model")
        files: list[dict[str, Any]] = []
        for role, network in networks.items():
            staged = build.staging / role
            with plain_embeddings(network), in_evaluation(network):
                network.save_pretrained(staged, state_dict=own_tensors(network))
                _check_reload(network, staged, tokenizer)
            (out / role).mkdir(exist_ok=True)
            for path in sorted(staged.iterdir()):
                files.append(committed_file(out, f"{role}/{path.name}", path.replace))
            write_card = partial(Path.write_text, data=cards[role], encoding="utf-8")
            files.append(committed_file(out, f"{role}/README.md", write_card))
            files += tokenizers.save_tokenizer(
                tokenizer, out / role, longest, out, token_types=takes_token_types(network)
            )
        return build.finish({"files": files})


def update_card(folder: Path, kind: str, name: str, text: str) -> bool:
    """Replace the card of a finished folder if it differs; returns whether it did.

    The manifest, which has the hash of the card, is committed after it. If the process is killed
    in between, running the same command again commits both.
    """
    manifest = read_manifest(folder, kind)
    entries = {entry["name"]: entry for entry in manifest["files"]}
    intact = name in entries and not describe_damage(folder, entries[name])
    if intact and (folder / name).read_bytes() == text.encode():
        return False
    write = partial(Path.write_text, data=text, encoding="utf-8")
    entries[name] = committed_file(folder, name, write)
    write_json(folder / "manifest.json", {**manifest, "files": [*entries.values()]})
    return True


def encoder_alone(network: Any) -> Any:
    """Return the backbone of a network, sharing its weights, with a copy of its configuration.

    Every transformers class that loads it initialises a new head. The head of a token classifier
    would be mistaken for that of a sequence classifier with two labels, and refused with three.
    """
    encoder = copy.copy(network.base_model)
    encoder.config = copy.deepcopy(network.config)
    encoder.config.id2label = {0: "LABEL_0", 1: "LABEL_1"}  # the defaults
    encoder.config.label2id = {"LABEL_0": 0, "LABEL_1": 1}
    return encoder


def encoder_folder(exported: Path) -> Path:
    """Return the folder of an export to fine-tune; older exports have no `encoder`."""
    roles = (ENCODER_ROLE, "discriminator", "model")
    found = (exported / role for role in roles if (exported / role / "config.json").is_file())
    return next(found, exported / ENCODER_ROLE)


@contextmanager
def in_evaluation(network: nn.Module) -> Iterator[None]:
    """Put a network in evaluation mode inside the context."""
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)


@contextmanager
def plain_embeddings(network: Any) -> Iterator[None]:
    """Replace gradient-disentangled embeddings by ordinary ones inside the context."""
    embeddings = network.get_input_embeddings()
    if not isinstance(embeddings, DisentangledEmbedding):
        yield
        return
    plain = nn.Embedding(*embeddings.weight.shape)
    plain.weight = nn.Parameter(embeddings.weight.detach().clone())
    network.set_input_embeddings(plain)
    try:
        yield
    finally:
        network.set_input_embeddings(embeddings)


def own_tensors(network: Any) -> dict[str, Tensor]:
    """Return a network's tensors, with copies of those that transformers does not know are tied."""
    tensors = dict(network.state_dict())
    seen: dict[int, str] = {}
    tied = network.all_tied_weights_keys
    for name, tensor in tensors.items():
        first = seen.setdefault(tensor.data_ptr(), name)
        if first != name and name not in tied and first not in tied and tensor.numel():
            tensors[name] = tensor.clone()
    return tensors


def _check_reload(network: Any, folder: Path, tokenizer: LoadedTokenizer) -> None:
    """Refuse an export whose outputs differ from those of the network."""
    reloaded = open_model(type(network), str(folder))[0].eval()
    probe_BL = probe_ids(tokenizer)
    with torch.no_grad():
        found, wanted = (network_outputs(net, probe_BL) for net in (reloaded, network))
    difference = (found - wanted).abs().max()
    if not difference <= EXPORT_TOLERANCE:
        raise UserError(
            f"{network.config.model_type} does not survive export",
            got=f"outputs differ by {float(difference):.2g} after from_pretrained",
            fix="export with the transformers version that trained it; the run itself is unchanged",
        )


def probe_ids(tokenizer: LoadedTokenizer) -> Tensor:
    """Return one row of token ids on which to compare two networks."""
    ids_L = torch.arange(PROBE_LENGTH) * 7919 % tokenizer.vocab_size
    ids_L[0], ids_L[-1] = tokenizer.special.cls, tokenizer.special.sep
    ids_L[ids_L == tokenizer.special.pad] = tokenizer.special.mask
    return ids_L.unsqueeze(0)


def network_outputs(network: nn.Module, ids_BL: Tensor) -> Tensor:
    """Return a network's logits, or the last hidden states of an encoder, on the CPU."""
    ids_BL = ids_BL.to(next(network.parameters()).device)
    output: Tensor = network(input_ids=ids_BL, attention_mask=torch.ones_like(ids_BL))[0]
    return output.float().cpu()
