"""Trace an update and a prediction of every fine-tuning head; prints one JSON object per head."""

from tests.gpu.trace import CUDA, Trace, cuda_engine, moved, pretended_cuda  # noqa: I001


import json
import sys

import torch
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    ElectraConfig,
)

from electrify.finetuning.heads import Classifier, Examples, Labelled, OwnHead
from electrify.finetuning.own.tagging import TaggedBatch, Tagger
from electrify.finetuning.squad.heads import JointSpans, SimpleSpans
from electrify.finetuning.squad.windows import WindowBatch
from electrify.models.export import in_evaluation
from electrify.models.fast import enable_fast_path
from electrify.models.inputs import batch_to_device
from electrify.recipes.schema import Optimizer
from electrify.training.layers import layer_scale
from electrify.training.optim import build_optimizer
from electrify.training.update import accumulate, apply_update

ROWS, LENGTH = 4, 32
CONFIG = ElectraConfig(
    vocab_size=200, embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=64,
)  # fmt: skip


def heads() -> dict:
    """Return every head with a batch for it."""
    ids = torch.randint(5, 200, (ROWS, LENGTH))
    attention = torch.ones_like(ids)
    attention[-1, 20:] = 0
    inputs, zeros_B = (ids, attention, torch.zeros_like(ids)), torch.zeros(ROWS).long()
    labelled = Labelled(*inputs, zeros_B, torch.ones(ROWS))
    allowed = torch.ones(ROWS, LENGTH)
    asked = WindowBatch(*inputs, allowed, zeros_B, zeros_B, torch.zeros(ROWS))
    network = AutoModelForSequenceClassification.from_config(CONFIG)
    questions = AutoModelForQuestionAnswering.from_config(CONFIG)
    tags = AutoModelForTokenClassification.from_config(CONFIG)
    return {
        "official": (Classifier(AutoModel.from_config(CONFIG), 2, "classes", "sum"), labelled),
        "own": (OwnHead(network, "classes"), labelled),
        "tagger": (Tagger(tags), TaggedBatch(*inputs, torch.zeros_like(ids))),
        "squad simple": (SimpleSpans(questions), asked),
        "squad joint": (JointSpans(AutoModel.from_config(CONFIG)), asked),
    }


def traced(model, batch, precision: str) -> dict:
    """Trace two updates and a prediction of a head."""
    enable_fast_path(model.network if hasattr(model, "network") else model.body)
    engine = cuda_engine(precision)
    with pretended_cuda():
        moved(model).train()
        optimizer = build_optimizer(model, Optimizer(), layer_scale(model, 0.8, "official"))
        for _ in range(2):
            with Trace(padded=True) as update:
                on_device = [batch_to_device(batch, CUDA)]
                accumulate(model, optimizer, on_device, Examples(ROWS, 100.0), 1.0, engine)
                apply_update(optimizer, 1e-4, engine=engine)
        with Trace(padded=True) as prediction, torch.no_grad(), in_evaluation(model):
            model.logits(batch_to_device(batch, CUDA)).float().cpu()
    return {"waits": update.waits, "prediction waits": prediction.waits, "copies": update.copies}


if __name__ == "__main__":
    for precision in sys.argv[1:]:
        for name, (model, batch) in heads().items():
            print(json.dumps({"head": name, **traced(model, batch, precision)}), flush=True)
