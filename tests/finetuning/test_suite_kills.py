"""A suite of six tasks, three seeds and three models, killed ten times: the same bytes."""

from pathlib import Path

import pytest
import torch
from tests.finetuning.own_files import write_classes, write_tags
from tests.finetuning.suite_kills import KILLS, compare_killed, finished_jobs
from transformers import AutoModel, AutoTokenizer

SUITE = """seeds = 3
epochs = 2
length = 32
train_limit = 64

[[task]]
name = "places"
train = "tags/train.txt"
dev = "tags/dev.txt"

[[task]]
name = "second-column"
train = "tags/train.txt"
dev = "tags/dev.txt"
label = "3"

[[task]]
name = "sentiment"
train = "classes/train.csv"
dev = "classes/dev.csv"

[[task]]
task = "stsb"
data = "glue"

[[task]]
task = "mrpc"
data = "glue"

[[task]]
task = "cola"
data = "glue"
"""


@pytest.mark.slow
def test_killed_ten_times_it_ends_with_the_same_bytes(encoder_folder, glue_folder, tmp_path):
    data, other = tmp_path / "data", tmp_path / "other"
    for name, write in {"tags": write_tags, "classes": write_classes}.items():
        (data / name).mkdir(parents=True)
        write(data / name)
    (data / "glue").symlink_to(glue_folder)
    (data / "suite.toml").write_text(SUITE)
    write_other(encoder_folder, other)
    models = f"tiny={encoder_folder}", f"random=random:{encoder_folder}", str(other)
    kills = compare_killed(data / "suite.toml", models, tmp_path)
    assert len(kills) == KILLS
    assert finished_jobs(tmp_path / "killed") == 6 * 3 * 3
    assert 0 < kills[-1].finished < 54


def write_other(encoder: Path, folder: Path) -> None:
    torch.manual_seed(1)
    AutoModel.from_config(AutoModel.from_pretrained(encoder).config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(encoder).save_pretrained(folder)
