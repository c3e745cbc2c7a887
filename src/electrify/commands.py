"""The table of commands. Each one imports its modules when it runs."""

from typing import NamedTuple


class Command(NamedTuple):
    """A command: its summary, the function that runs it, and an example."""

    summary: str
    function: str
    example: str
    kinds: str | None = None
    """The table of kinds, for commands whose first argument is a kind."""
    json: bool = False
    """Whether the function returns its result, which --json then prints for scripts."""
    settings: str = ""
    """The settings class, if it is in another module so that help does not import torch."""
    resume: str = ""
    """The function that returns the settings of `--resume RUN`, for commands that have it."""


COMMANDS = {
    "quickstart": Command(
        "run the complete pipeline on your Python's docstrings (no downloads)",
        "electrify.quickstart.command:quickstart",
        "electrify quickstart --out quickstart",
    ),
    "train": Command(
        "train on a folder of text: choose settings, train, export and report",
        "electrify.pipeline.command:train_from_text",
        "electrify train my_texts/ --budget 1h --out trained",
    ),
    "adapt": Command(
        "adapt a released model to your text: extend, continue, compare and report",
        "electrify.pipeline.adapt:adapt",
        "electrify adapt MODEL --docs my_texts/ --budget 30m --out adapted",
    ),
    "corpus": Command(
        "turn raw text into documents",
        "electrify.corpora.corpus:corpus",
        "electrify corpus wikipedia enwiki-latest-pages-articles.xml.bz2 --out docs",
        kinds="electrify.corpora.corpus:KINDS",
        json=True,
    ),
    "tokenizer": Command(
        "train a tokenizer on documents, or convert an existing one",
        "electrify.tokens.vocabulary:make_tokenizer",
        "electrify tokenizer docs --vocab-size 30522 --out tokenizer",
    ),
    "tokenizer extend": Command(
        "add the words of your documents to an existing tokenizer",
        "electrify.tokens.extend:extend_tokenizer",
        "electrify tokenizer extend google/electra-small-discriminator --docs docs --out tokenizer",
        json=True,
    ),
    "prepare": Command(
        "turn documents into token shards",
        "electrify.tokens.prepare:prepare",
        "electrify prepare docs --tokenizer tokenizer --length 128 --out shards",
        json=True,
    ),
    "recipes": Command(
        "list, show, copy and check recipes",
        "electrify.planning.cookbook:recipes",
        "electrify recipes copy electra-small",
        json=True,
    ),
    "plan": Command(
        "estimate the parameters, FLOPs, memory and time of a recipe",
        "electrify.planning.plan:plan",
        "electrify plan electra-small --hardware V100",
        json=True,
    ),
    "pretrain": Command(
        "pre-train a model from shards (rerun to resume)",
        "electrify.training.pretrain:pretrain",
        "electrify pretrain electra-small --data shards --out run",
        settings="electrify.training.options:Pretrain",
        resume="electrify.training.resume:resumed",
    ),
    "export": Command(
        "export a run as Hugging Face model folders, sentence vectors or ONNX; upload to the Hub",
        "electrify.publishing.command:export",
        "electrify export run --out model",
        settings="electrify.publishing.options:ExportModel",
    ),
    "glue": Command(
        "fine-tune on GLUE tasks with several seeds and compare with published results",
        "electrify.finetuning.glue.command:glue",
        "electrify glue model/encoder --data GLUE --tasks cola,mrpc --seeds 5 --out glue",
        json=True,
        settings="electrify.finetuning.options:Glue",
    ),
    "data glue": Command(
        "download GLUE from the Hugging Face Hub",
        "electrify.finetuning.glue.download:download_glue",
        "electrify data glue --out GLUE",
        settings="electrify.finetuning.options:GlueData",
    ),
    "glue submit": Command(
        "write test-set predictions of the best runs: a zip for the GLUE server, or .tsv files",
        "electrify.finetuning.glue.submit:glue_submit",
        "electrify glue submit glue --data GLUE --out submission.zip",
        settings="electrify.finetuning.options:GlueSubmit",
    ),
    "glue search": Command(
        "search the learning rate, layer decay, epochs and batch size of a task with Optuna",
        "electrify.finetuning.glue.search:search",
        "electrify glue search model/encoder --data GLUE --task cola --out search",
        settings="electrify.finetuning.options:Search",
    ),
    "glue compare": Command(
        "compare two sets of GLUE results seed by seed",
        "electrify.finetuning.glue.compare:compare",
        "electrify glue compare glue-a glue-b",
        json=True,
    ),
    "glue stability": Command(
        "measure how GLUE scores vary over pre-training seeds",
        "electrify.finetuning.glue.stability:stability",
        "electrify glue stability glue-1 glue-2 glue-3",
        json=True,
    ),
    "blimp": Command(
        "measure grammatical knowledge with minimal pairs, without labels or fine-tuning",
        "electrify.finetuning.blimp.command:blimp",
        "electrify blimp model/discriminator --data BLIMP --out blimp",
        json=True,
        settings="electrify.finetuning.options:Blimp",
    ),
    "probe": Command(
        "fine-tune the checkpoints of a run to track scores over pre-training",
        "electrify.finetuning.glue.probe:probe",
        "electrify probe run --data GLUE --tasks cola,stsb --out probe",
        json=True,
        settings="electrify.finetuning.options:Probe",
    ),
    "squad": Command(
        "fine-tune on SQuAD 1.1 or 2.0 and report exact match and F1",
        "electrify.finetuning.squad.command:squad",
        "electrify squad model/encoder --data SQUAD --out squad",
        json=True,
        settings="electrify.finetuning.options:Squad",
    ),
    "finetune": Command(
        "fine-tune on your own data: classification, regression, tagging or sentence vectors",
        "electrify.finetuning.own.command:finetune",
        "electrify finetune model/encoder --train train.tsv --dev dev.tsv --out tuned",
        json=True,
        settings="electrify.finetuning.options:Finetune",
    ),
    "suite": Command(
        "fine-tune several models on the tasks of one TOML file and compare them",
        "electrify.finetuning.suite.command:suite",
        "electrify suite suite.toml model/encoder random:model/encoder --out suite",
        json=True,
        settings="electrify.finetuning.options:Suite",
    ),
    "predict": Command(
        "predict labels or scores for a sentence or the rows of a file",
        "electrify.finetuning.own.predict:predict",
        'electrify predict tuned "Who wrote Emma?"',
        settings="electrify.finetuning.options:Predict",
    ),
    "embed": Command(
        "write a sentence vector for every text of a file, with any encoder",
        "electrify.finetuning.vectors.embed:embed",
        "electrify embed model/encoder texts.txt --out vectors.npy",
        settings="electrify.finetuning.options:Embed",
    ),
    "classify": Command(
        "classify texts without training: the label that looks most original in a template",
        "electrify.finetuning.zeroshot.command:classify",
        'electrify classify model "A fine film." --template "It was {label}." --labels good,bad',
        json=True,
        settings="electrify.finetuning.options:Classify",
    ),
    "show": Command(
        "print examples of documents, shards or a run, or verify their checksums",
        "electrify.reports.show_run:show",
        "electrify show shards --count 3",
    ),
    "inspect": Command(
        "show, for each token, the probability that it was replaced (--serve: as a web page)",
        "electrify.reports.inspection:inspect",
        'electrify inspect model "The quick brown fax jumps." --html page.html',
        settings="electrify.reports.options:Inspect",
    ),
    "report": Command(
        "summarize runs and GLUE results in one HTML page",
        "electrify.reports.report:report",
        "electrify report run glue --out report.html",
        settings="electrify.reports.options:Report",
    ),
    "doctor": Command(
        "report versions, CPU, memory, GPU, and what is missing (--gpu: try training on it)",
        "electrify.diagnosis.command:doctor",
        "electrify doctor",
        json=True,
    ),
    "completion": Command(
        "print a script that completes commands and options in bash, zsh or fish",
        "electrify.completion:completion",
        "electrify completion bash > ~/.local/share/bash-completion/completions/electrify",
    ),
}
HEADINGS = {
    "quickstart": "Try it",
    "corpus": "Prepare data",
    "recipes": "Pre-train",
    "glue": "Fine-tune and evaluate",
    "show": "Look at results",
    "doctor": "Set up your machine",
}
"""The headings of `electrify --help`, by the command that each stands above."""
