"""Write exported networks for ONNX Runtime.

OUT/onnx/ROLE/model.onnx     inputs input_ids, attention_mask and, if the network has two token
                             types, token_type_ids; any batch size, any length up to its positions
             …               configuration and tokenizer, so that the folder can be served alone

Outputs: `logits` of a discriminator or masked LM, and for a discriminator also `replaced`, the
probability that each token was replaced; `last_hidden_state` of the encoder. Every file is run with
ONNX Runtime on several shapes and must equal torch before the folder counts as finished.

The exporter is torch's own (`torch.onnx.export(…, dynamo=True)`, torch's default since 2.9):
it derives which dimensions are dynamic from the code of the network. The older exporter, which
records one forward pass, gives the same numbers for ELECTRA, ALBERT and ModernBERT.
"""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from shutil import copyfile
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn

from electrify.errors import UserError, needs
from electrify.finetuning.encoder import fingerprint, open_encoder
from electrify.models.export import ENCODER_ROLE
from electrify.models.inputs import takes_token_types
from electrify.models.pretrained import open_config, open_model
from electrify.objectives.rtd import replaced_logits
from electrify.storage.build import Build, committed_file

ONNX_FOLDER = "onnx"
ONNX_FILE = "model.onnx"
ONNX_TOLERANCE = 1e-4
LONGEST_CHECKED = 512
CHECKED_LENGTHS = (1, 2, 7, 64, LONGEST_CHECKED)
CHECKED_BATCHES = (1, 3, 8)
NOT_SERVED = (".safetensors", ".md")
"""Suffixes of files of a network's folder that ONNX Runtime does not need."""
Arrays = dict[str, NDArray[Any]]


def need_onnx() -> Any:
    """Import what exporting and running needs, or name the extra; returns ONNX Runtime."""
    needs("onnx", extra="onnx", why="--onnx")
    needs("onnxscript", extra="onnx", why="--onnx")
    return needs("onnxruntime", extra="onnx", why="--onnx")


class ForOnnx(nn.Module):
    """A network with positional inputs and a tuple of outputs."""

    def __init__(self, network: Any, role: str) -> None:
        super().__init__()
        self.network = network
        self.inputs = ["input_ids", "attention_mask"]
        self.inputs += ["token_type_ids"] if takes_token_types(network) else []
        self.detects = role == "discriminator"
        first = "last_hidden_state" if role == ENCODER_ROLE else "logits"
        self.outputs = [first, "replaced"] if self.detects else [first]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the outputs named in `outputs`."""
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        first = self.network(input_ids=input_ids, attention_mask=attention_mask, **types)[0]
        return (first, torch.sigmoid(replaced_logits(first))) if self.detects else (first,)


def load_for_onnx(folder: Path, role: str) -> ForOnnx:
    """Load an exported network with the class that its configuration names."""
    kind = getattr(transformers, open_config(str(folder)).architectures[0])
    return ForOnnx(open_model(kind, str(folder))[0], role).eval()


def export_onnx(folders: Mapping[str, Path], out: Path) -> dict[str, Path]:
    """Write every network of an export for ONNX Runtime; returns the folders by role."""
    runtime = need_onnx()
    identity = {"models": {role: fingerprint(str(path)) for role, path in folders.items()}}
    with Build(out, ONNX_FOLDER, identity, files=[f"{role}/*" for role in folders]) as build:
        if not build.finished:
            entries: list[dict[str, Any]] = []
            for role, folder in folders.items():
                entries += _export_one(runtime, build, role, folder)
            build.finish({"files": entries})
    return {role: out / role for role in folders}


def _export_one(runtime: Any, build: Build, role: str, folder: Path) -> list[dict[str, Any]]:
    network, encoder = load_for_onnx(folder, role), open_encoder(str(folder))
    longest = min(LONGEST_CHECKED, encoder.longest)
    staged = build.staging / role
    staged.mkdir(exist_ok=True)
    write_onnx(network, staged / ONNX_FILE, encoder.config.vocab_size)
    lengths = sorted({min(length, longest) for length in CHECKED_LENGTHS})
    shapes = [(batch, length) for length in lengths for batch in CHECKED_BATCHES]
    found = compare_onnx(runtime, network, staged / ONNX_FILE, shapes, encoder.config.vocab_size)
    if not found.difference <= ONNX_TOLERANCE:
        raise UserError(
            f"ONNX Runtime does not give the outputs of the {encoder.config.model_type} {role}",
            got=f"{found.output} differs by {found.difference:.2g} for {found.shape[0]} × "
            f"{found.shape[1]} tokens",
            fix="use the versions in constraints.txt; the other folders are unchanged",
        )
    (build.out / role).mkdir(exist_ok=True)
    others = [path for path in sorted(folder.iterdir()) if path.suffix not in NOT_SERVED]
    entries = [committed_file(build.out, f"{role}/{ONNX_FILE}", (staged / ONNX_FILE).replace)]
    for path in filter(Path.is_file, others):
        copy = partial(copyfile, path)
        entries.append(committed_file(build.out, f"{role}/{path.name}", copy))
    print(
        f"{build.out / role / ONNX_FILE}: {', '.join(network.outputs)}; {len(shapes)} shapes up to "
        f"{max(CHECKED_BATCHES)} × {longest} differ from torch by at most {found.difference:.1g}"
    )
    return entries


def write_onnx(network: ForOnnx, path: Path, vocab_size: int) -> None:
    """Export a network with dynamic batch and length."""
    example = onnx_inputs(network, 2, 6, vocab_size)
    arguments = tuple(torch.from_numpy(example[name]) for name in network.inputs)
    axes = {name: {0: "batch", 1: "length"} for name in network.inputs}
    try:
        with _quiet(), torch.no_grad():
            torch.onnx.export(
                network,
                arguments,
                path,
                input_names=network.inputs,
                output_names=network.outputs,
                dynamic_shapes=axes,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        causes = [line for line in str(error.__cause__ or error).splitlines() if line.strip()]
        raise UserError(
            f"torch cannot export {network.network.config.model_type} to ONNX",
            got=causes[0][:300] if causes else type(error).__name__,
            fix="leave out --onnx",
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter, which reports packages that are not needed here."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def onnx_inputs(network: ForOnnx, batch: int, length: int, vocab_size: int) -> Arrays:
    """Return inputs of a shape: the same for the same shape, with padding in all rows but one."""
    rng = np.random.default_rng([batch, length])
    ids_BL = rng.integers(0, vocab_size, (batch, length))
    lengths_B1 = np.maximum(1, length - 3 * np.arange(batch))[:, None]
    attention_BL = (np.arange(length) < lengths_B1).astype(np.int64)
    types_BL = (np.arange(length) >= lengths_B1 // 2).astype(np.int64) * attention_BL
    values = {"input_ids": ids_BL, "attention_mask": attention_BL, "token_type_ids": types_BL}
    return {name: values[name] for name in network.inputs}


class OnnxDifference(NamedTuple):
    """The largest difference between ONNX Runtime and torch."""

    difference: float
    shape: tuple[int, int]
    output: str


@torch.no_grad()
def compare_onnx(
    runtime: Any, network: ForOnnx, path: Path, shapes: list[tuple[int, int]], vocab_size: int
) -> OnnxDifference:
    """Run both on inputs of several shapes and compare their outputs at all real tokens."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    worst = OnnxDifference(0.0, (0, 0), "")
    for shape in shapes:
        inputs = onnx_inputs(network, *shape, vocab_size)
        wanted = network(*(torch.from_numpy(inputs[name]) for name in network.inputs))
        found = session.run(network.outputs, inputs)
        real_BL = inputs["attention_mask"] == 1
        for name, mine, theirs in zip(network.outputs, wanted, found, strict=True):
            error = np.abs(mine.numpy() - theirs)[real_BL].max()
            if not error <= worst.difference:
                worst = OnnxDifference(float(error), shape, name)
            if np.isnan(error):  # nothing is larger
                return worst
    return worst
