"""The `electrify plan` command, run in this process so that torch is imported once."""

import json

import pytest

from electrify.cli import main
from electrify.planning.hardware import KNOWN, name_of, near
from electrify.recipes.schema import recipe_path


@pytest.fixture
def planned(capsys):
    """Return a function that runs the command with --json and returns its output."""

    def run(*arguments: str) -> dict:
        assert main(["plan", *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_the_text_has_the_numbers_of_the_json(capsys, planned):
    table = planned("electra-small", "--hardware", "V100")
    assert main(["plan", "electra-small", "--hardware", "v100"]) == 0
    text = capsys.readouterr().out
    assert table["parameters"]["trained"] == 14_196_219
    for expected in (
        "electra-small: rtd, 1,000,000 steps of 128 × 128 tokens, vocabulary 30,522",
        "14,196,219",
        "16.4 billion",
        f"{table['run']['flops']:.4g}",
        "1.294e+18",  # the paper's
        "Estimated time on 1 × V100",
        "NVIDIA V100 datasheet",
        "assuming 70% of the peak of 15.7 (float32) and 125 (mixed) TFLOP/s and 900 GB/s",
        "CUDA context",
        f"{table['tokens_per_second']['mixed']:,.0f}",
        table["limits"]["mixed"],
    ):
        assert expected in text


def test_flags_change_the_recipe(planned):
    plain = planned("tiny", "--hardware", "T4")
    longer = planned("tiny", "--hardware", "T4", "--run.steps", "4000")
    assert longer["step"] == plain["step"]
    assert longer["seconds"]["float32"] == pytest.approx(2 * plain["seconds"]["float32"])
    wider = planned("tiny", "--hardware", "T4", "--discriminator.config.hidden-size", "256")
    assert wider["parameters"]["discriminator"]["encoder"] > 2 * 328_192
    encoders = [
        planned("electra-small", "--hardware=T4", *flags)["parameters"]["generator"]["encoder"]
        for flags in ([], ["--generator.config.num_hidden_layers=6"])
    ]
    assert 0.4 < encoders[1] / encoders[0] < 0.6
    fewer = planned("tiny", "--hardware", "T4", "--vocab-size", "8192")
    assert fewer["parameters"]["shared"] == 8192 * 128 + 328_192  # all but the encoder's last norm


def test_a_masked_lm_has_one_network(planned):
    table = planned("bert-small", "--hardware", "T4")
    assert table["parameters"]["model"]["all"] == table["parameters"]["trained"] == 13_546_682
    assert "generator" not in table["parameters"]


def test_your_own_recipe_by_path(tmp_path, planned):
    mine = tmp_path / "mine.toml"
    mine.write_text(recipe_path("tiny").read_text().replace("steps = 2_000", "steps = 3_000"))
    table = planned(str(mine), "--hardware", "T4")
    assert table["recipe"] == str(mine)
    assert table["run"]["tokens"] == 3_000 * 32 * 64


@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_the_micro_batch_is_the_largest_that_fits(planned, precision):
    roomy, tight, none = (
        planned("electra-base", "--hardware", "A100", "--memory", memory)["memory"][precision]
        for memory in ("1000", "16", "1")
    )
    assert (roomy["micro_batch"], roomy["fits"]) == (256, True)
    assert 1 < tight["micro_batch"] < 256
    assert tight["all"] <= 0.9 * 16e9 < tight["all"] + tight["activations"]
    assert (none["micro_batch"], none["fits"]) == (1, False)
    given = planned("electra-base", "--hardware", "A100", "--micro-batch", "2")["memory"][precision]
    assert given["micro_batch"] == 2
    assert given["activations"] == pytest.approx(2 * none["activations"], abs=2)


def test_hardware_options_are_used(planned):
    options = ("electra-small", "--hardware=A100", "--tflops=10", "--utilisation=0.5")
    one, four = planned(*options), planned(*options, "--devices=4")
    assert four["seconds"]["mixed"] == pytest.approx(one["seconds"]["mixed"] / 4, rel=0.05)
    matmuls = one["run"]["flops"] / 5e12
    assert 2 * matmuls < one["seconds"]["mixed"] < 3 * matmuls  # narrow ones take longer
    assert one["seconds"]["mixed"] == pytest.approx(one["seconds"]["float32"], rel=0.02)
    narrow = planned(*options, "--bandwidth=10")
    assert narrow["limits"]["mixed"] == "memory"
    assert narrow["seconds"]["mixed"] > 3 * one["seconds"]["mixed"]


def test_checkpointing_costs_time_and_saves_memory_and_compiling_saves_time(planned):
    options = ("electra-base", "--hardware", "A100", "--micro-batch", "32")
    plain, checkpointed, compiled = (
        planned(*options, *more) for more in ([], ["--checkpoint-activations"], ["--compile"])
    )
    for precision in ("float32", "mixed"):
        ratio = checkpointed["seconds"][precision] / plain["seconds"][precision]
        assert 1.25 < ratio < 1.35
        assert compiled["seconds"][precision] < plain["seconds"][precision]
        memories = [table["memory"][precision]["activations"] for table in (checkpointed, plain)]
        assert memories[0] < memories[1] / 4


def test_options_without_effect_are_noted(planned):
    notes = planned("alectra-small-owt", "--checkpoint-activations", "--compile")["notes"]
    assert notes[-3] == "what --compile saves is estimated for GPUs only"
    assert "--checkpoint-activations is refused: the generator's" in notes[-1]


def test_small_micro_batches_are_limited_by_launches(planned):
    table = planned("electra-small", "--hardware", "H100", "--micro-batch", "1")
    assert table["limits"] == {"float32": "launches", "mixed": "launches"}


def test_this_machine_is_measured(planned):
    hardware = planned("tiny")["hardware"]
    assert hardware["name"] == "here"
    assert 1e8 < hardware["float32"] < 1e15
    assert hardware["memory"] > 1e8
    assert "measured now" in hardware["source"]


def test_weights_that_cannot_be_shared_are_noted(capsys):
    arguments = ["--hardware", "T4", "--generator.config.hidden-size", "64"]
    assert main(["plan", "tiny", *arguments]) == 0
    assert (
        "note: not shared: embeddings.tok_embeddings.weight: (30522, 64)" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tinny"], "did you mean tiny?"),
        (["--run.steps", "3"], "needs a recipe first"),
        (["none.toml"], "cannot read none.toml"),
        (["tiny", "--hardware", "H100 PCI"], "did you mean H100-PCIe?"),
        (["tiny", "--hardware", "RTX 4060 Labtop"], "did you mean RTX4060-Laptop?"),
        (["tiny", "--bandwidth", "0"], "--bandwidth must be above 0"),
        (["tiny", "--hardware", "B100"], "use one of T4, V100, V100-32GB, A10"),
        (["tiny", "--hardware", "T4", "--discriminator.config.hidden-sizes", "8"], "hidden_size?"),
        (["tiny", "--hardware", "T4", "--discriminator.architecture", "bertt"], "mean bert?"),
        (["tiny", "--discriminator.config.hidden-size"], "needs a value"),
        (["tiny", "--utilisation", "2"], "--utilisation must be above 0 and at most 1"),
        (["tiny", "--tflops", "0"], "--tflops must be above 0"),
        (["tiny", "--devices", "0"], "--devices is too small"),
        (["bert-small", "--hardware", "T4", "--run.length", "1000"], "position embeddings"),
    ],
)
def test_bad_input_ends_in_an_error(capsys, arguments, message):
    assert main(["plan", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "got:" in error
    assert "fix:" in error


def test_help_shows_the_values_of_the_recipe(capsys):
    with pytest.raises(SystemExit) as end:
        main(["plan", "electra-small-owt", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for expected in ("electrify plan electra-small-owt", "(default: lamb)", "(default: 500000)"):
        assert expected in text
    assert "--generator.config.intermediate-size 256" in text
    with pytest.raises(SystemExit):
        main(["plan"])
    assert "usage: electrify plan RECIPE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("4090", "RTX4090"),
        ("RTX 4090", "RTX4090"),
        ("rtx-5090", "RTX5090"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        ("Tesla T4", "T4"),
        ("RTX A6000", "A6000"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("a100 80gb", "A100-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA RTX A6000", "A6000"),
        ("Apple M4 Max", "M4-Max"),
        ("MacBook Pro M3 Pro", "M3-Pro"),
        ("macbook air m2", "M2"),
        ("NVIDIA GeForce RTX 4060 Laptop GPU", "RTX4060-Laptop"),
        ("RTX 4070 Ti SUPER", "RTX4070TiSuper"),
        *((name, name) for name in ("L4", "A10", "A10G", "L40S", "H200", "B200", "GH200")),
    ],
)
def test_devices_are_recognised_as_people_and_drivers_write_them(written, name):
    assert name_of(written) == name


@pytest.mark.parametrize(
    "written",
    [
        *("B100", "A1000", "L", "T", "V", "5", "9070", "MI300X", ""),
        *("NVIDIA H100 64GB HBM2", "NVIDIA RTX 6000 Ada Generation", "Tesla V100-PCIE-16GB"),
    ],
)
def test_other_devices_are_not_mistaken_for_known_ones(written):
    assert name_of(written) is None
    assert near(written) is None


def test_peaks_are_plausible_and_have_a_source():
    for name, device in KNOWN.items():
        assert 1 <= device.mixed / device.float32 <= 8.1, name
        assert 1e12 < device.mixed < 3e15, name
        assert 4e9 <= device.memory < 2e11, name
        assert 20 < device.mixed / device.bandwidth < 420, name
        assert device.source, name


def test_a_plan_for_a_gpu_by_its_number(planned):
    assert planned("tiny", "--hardware", "4090")["hardware"]["name"] == "RTX4090"
