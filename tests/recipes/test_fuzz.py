"""Recipes with any value in any numeric field are trained, or refused with what, got and fix.

They never end in a traceback or a hang. Each case is a file that `recipes check`, `plan` and
`pretrain` read in turn, in a process forked from one that has imported everything.
"""

import shutil
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest
from tests.training.nursery import Nursery

from electrify.models.limits import FIXED
from electrify.recipes.ranges import RANGES
from electrify.recipes.schema import Recipe

HUGE = "9" * 400
VALUES = """
    0 -1 1 2 3 8 32 33 512 65536 1000000 2147483647 2147483648 9223372036854775807
    9223372036854775808 -9223372036854775808 0.0 -0.0 0.5 -0.5 0.999999999 1.0 1.5 5e-324 1e-45
    1e-12 1e12 1e30 1e39 1e308 nan inf -inf true false "" "1" "x" [] {} 2020-01-01
"""
# Architectures have many fields: fewer values, and no training with sizes that take long.
FEWER_VALUES = """
    0 -1 1 1000000 2147483648 9223372036854775808 0.5 1.0 1e30 nan -inf true "x"
"""
NUMBERS, FEWER = ([*values.split(), HUGE] for values in (VALUES, FEWER_VALUES))
SECONDS = 180  # a network of a hundred million parameters may take that long
DONE = (0, 2, 4)  # trained, refused or stopped by the guard
BEFORE = f"""
import signal
signal.alarm({SECONDS})  # kills a child that hangs
for arguments in (["recipes", "check", "{{file}}"], ["plan", "{{file}}", "--hardware", "T4"]):
    assert electrify.cli.main(arguments) in (0, 2)
"""

SMALL = """
[discriminator]
architecture = "{architecture}"
[discriminator.config]
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 2
intermediate_size = 64
max_position_embeddings = 64
[generator]
width = 0.5
[optimizer]
lr = 1e-3
warmup = 1
[run]
steps = 2
batch_size = 4
length = 32
log_every = 1
eval_every = 2
eval_batches = 1
save_every = 2
"""


def numeric_fields() -> Iterator[str]:
    """Yield the dotted names of all numeric fields of a recipe."""
    for section in fields(Recipe):
        kind = get_type_hints(Recipe)[section.name]
        assert is_dataclass(kind)
        for name, hint in get_type_hints(kind).items():
            if hint in (int, float, tuple[float, ...]):
                yield f"{section.name}.{name}"


def test_every_numeric_field_has_a_range():
    assert set(numeric_fields()) == set(RANGES)


def with_value(architecture: str, name: str, value: str) -> str:
    """Return a small recipe as TOML with one value changed, possibly to an invalid one."""
    text = SMALL.format(architecture=architecture)
    section, _, field = name.rpartition(".")
    lines = [line for line in text.splitlines() if line]
    header = f"[{section}]"
    if header not in lines:
        return "\n".join([*lines, header, f"{field} = {value}"])
    start = lines.index(header) + 1
    stop = next((n for n in range(start, len(lines)) if lines[n].startswith("[")), len(lines))
    kept = [line for line in lines[start:stop] if not line.startswith(f"{field} =")]
    return "\n".join([*lines[:start], *kept, f"{field} = {value}", *lines[stop:]])


def test_a_case_changes_one_value():
    for name in ("run.steps", "generator.config.hidden_size", "objective.mask_rate"):
        changed = tomllib.loads(with_value("bert", name, "5"))
        for part in name.split("."):
            changed = changed[part]
        assert changed == 5


def cases() -> Iterator[tuple[str, str, str]]:
    """Yield architecture, field and value of each case."""
    for name in numeric_fields():
        for value in NUMBERS:
            yield "electra", name, f"[{value}]" if name == "run.keep_percent" else value
    from transformers import CONFIG_MAPPING

    for architecture in ("electra", "bert", "modernbert"):
        names = sorted(name for name in vars(CONFIG_MAPPING[architecture]()) if name[0] != "_")
        fixed = set().union(*FIXED.values())
        for name in names:
            for number, value in enumerate(FEWER if name not in fixed else ("0", "true")):
                role = ("discriminator", "generator")[number % 2]
                yield architecture, f"{role}.config.{name}", value


@pytest.mark.slow
def test_no_value_of_any_numeric_field_ends_in_a_traceback_or_a_hang(
    shards: Path, tmp_path: Path
) -> None:
    file, log = tmp_path / "fuzzed.toml", tmp_path / "log"
    exit_codes: Counter[str] = Counter()
    failures = []
    nursery = Nursery()
    for number, (architecture, name, value) in enumerate(cases()):
        file.write_text(with_value(architecture, name, value))
        log.write_bytes(b"")
        out = tmp_path / f"run{number}"
        arguments = ("pretrain", file, "--data", shards, "--out", out, "--device", "cpu")
        if name == "run.steps" or (name, value) == ("run.batch_size", "65536"):
            arguments = ("plan", file, "--hardware", "T4")  # training would take long
        code = nursery.run(*arguments, log=log, before=BEFORE.format(file=file))
        shutil.rmtree(out, ignore_errors=True)
        output = log.read_text(errors="replace")
        exit_codes[str(code)] += 1
        if code not in DONE or "Traceback" in output or (code and "\n  fix: " not in output):
            failures.append(f"{architecture} {name} = {value[:20]}: exit {code}\n{output[-600:]}")
    nursery.close()
    print(dict(exit_codes))
    assert not failures, f"{len(failures)} of {exit_codes.total()}\n" + "\n".join(failures)
