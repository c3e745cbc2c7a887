"""Released weights and an extended tokenizer: old outputs stay, and new rows are means."""

from dataclasses import replace

import pytest
import torch
from tests.models.tiny import tiny_recipe
from transformers import AutoModelForMaskedLM, AutoModelForTokenClassification

from electrify.errors import UserError
from electrify.models.export import export_networks
from electrify.models.pair import build_masked_lm, build_pair
from electrify.objectives.rtd import ReplacedTokenDetection
from electrify.recipes.schema import Discriminator, Generator, Recipe, Run, Sharing
from electrify.tokens.new_words import WordFinder, with_new_words
from electrify.tokens.tokenizer import LoadedTokenizer
from electrify.tokens.trainers import train_bpe, train_unigram, train_wordpiece
from electrify.training.data import vocabulary_of
from electrify.training.folder import RunFolder

LINES = [["the model reads the text and the mask hides some of the text"] * 5]
TOKENIZERS = {
    "wordpiece": lambda: train_wordpiece(LINES, 60, 2, lowercase=True, strip_accents=True),
    "bpe": lambda: train_bpe(LINES, 290, 2),
    "unigram": lambda: train_unigram(LINES, 40, lowercase=False, strip_accents=False),
}
WORDS = {
    "wordpiece": ("demand", "moths"),
    "bpe": ("Ġdemand", "Ġmoths"),
    "unigram": ("▁demand", "▁moths"),
}
OLD_TEXT, NEW_TEXT = "the text hides the model", "the demand reads moths"


def extended(base: LoadedTokenizer, kind: str) -> LoadedTokenizer:
    return with_new_words(WordFinder(base), WORDS[kind])


def ids(tokenizer: LoadedTokenizer, text: str) -> torch.Tensor:
    return torch.tensor([tokenizer.backend.encode(text).ids])


@pytest.fixture(params=[("electra", "wordpiece"), ("bert", "bpe"), ("modernbert", "unigram")])
def released(request, tmp_path):
    architecture, kind = request.param
    base = TOKENIZERS[kind]()
    pair = build_pair(tiny_recipe(architecture), vocabulary_of(base))
    with torch.no_grad():  # a bias that is not zero
        pair.generator.get_output_embeddings().bias.normal_()
    networks = {"generator": pair.generator, "discriminator": pair.discriminator}
    export_networks(networks, dict.fromkeys(networks, ""), base, tmp_path, {}, 64)
    for network in networks.values():
        network.eval()
    return architecture, kind, base, networks, tmp_path


def from_released(folder, architecture: str, new_embeddings="mean") -> Recipe:
    return Recipe(
        Discriminator(architecture, init_from=str(folder / "discriminator")),
        Generator(init_from=str(folder / "generator")),
        run=Run(new_embeddings=new_embeddings),
    )


def test_old_outputs_stay_and_new_rows_are_means(released):
    architecture, kind, base, networks, folder = released
    more = extended(base, kind)
    pair = build_pair(from_released(folder, architecture), vocabulary_of(more))
    assert len([note for note in pair.notes if "2 new tokens" in note]) == 2
    old = ids(base, OLD_TEXT)
    assert torch.equal(ids(more, OLD_TEXT), old)
    with torch.no_grad():
        for role, network in networks.items():
            now, before = getattr(pair, role).eval()(old).logits, network(old).logits
            assert torch.allclose(now[..., : before.shape[-1]], before, atol=1e-6, rtol=0)
    words, output = pair.generator.get_input_embeddings(), pair.generator.get_output_embeddings()
    assert output.weight is words.weight
    assert pair.discriminator.get_input_embeddings().weight is words.weight
    assert words.weight.shape[0] == output.bias.shape[0] == more.vocab_size
    assert {pair.generator.config.vocab_size, pair.discriminator.config.vocab_size} == {
        more.vocab_size
    }
    for number, entry in enumerate(WORDS[kind], start=base.vocab_size):
        pieces = [token.id for token in base.backend.model.tokenize(entry)]
        assert len(pieces) > 1
        assert torch.allclose(words.weight[number], words.weight[pieces].mean(0))
        assert torch.allclose(output.bias[number], output.bias[pieces].mean())
    assert int(ids(more, NEW_TEXT).max()) >= base.vocab_size
    assert torch.isfinite(pair.discriminator(ids(more, NEW_TEXT)).logits).all()


def test_random_rows_are_reproducible_and_differ_from_means(released):
    architecture, kind, base, _networks, folder = released
    vocabulary = vocabulary_of(extended(base, kind))
    rows = {}
    for name in ("mean", "random", "again"):
        start = "mean" if name == "mean" else "random"
        pair = build_pair(from_released(folder, architecture, start), vocabulary)
        rows[name] = pair.generator.get_input_embeddings().weight.detach()
    assert torch.equal(rows["random"], rows["again"])
    assert torch.equal(rows["random"][: base.vocab_size], rows["mean"][: base.vocab_size])
    assert not torch.allclose(rows["random"][base.vocab_size :], rows["mean"][base.vocab_size :])


def test_an_extended_pair_survives_export(released, tmp_path):
    architecture, kind, base, _networks, folder = released
    more = extended(base, kind)
    pair = build_pair(from_released(folder, architecture), vocabulary_of(more))
    both = {"generator": pair.generator, "discriminator": pair.discriminator}
    export_networks(both, dict.fromkeys(both, ""), more, tmp_path / "again", {}, 64)
    again = build_pair(from_released(tmp_path / "again", architecture), vocabulary_of(more))
    assert not any("new tokens" in note for note in again.notes)


def test_a_tokenizer_that_is_no_extension_is_refused(released, tmp_path):
    architecture, kind, base, _networks, folder = released
    other = train_wordpiece(LINES, 70, 1, lowercase=True, strip_accents=True)
    names = [t for t, _ in sorted(other.backend.get_vocab().items(), key=lambda item: item[1])]
    from electrify.tokens.tokenizer import from_vocabulary

    special, words = names[:5], names[5:]
    larger = from_vocabulary([*special, *reversed(words), *(f"other{n}" for n in range(400))])
    with pytest.raises(UserError, match="not an extension of the released model's"):
        build_pair(from_released(folder, architecture), vocabulary_of(larger))
    vocabulary = vocabulary_of(extended(base, kind))
    with pytest.raises(UserError, match="not prepared with the tokenizer of the released model"):
        build_pair(from_released(folder, architecture), vocabulary._replace(tokenizer=None))
    for role in ("generator", "discriminator"):
        for file in (folder / role).glob("tokenizer*"):
            file.unlink()
    from electrify.models import new_rows

    new_rows._released_tokenizer.cache_clear()
    with pytest.raises(UserError, match="needed to check that it was extended"):
        build_pair(from_released(folder, architecture), vocabulary)


def test_a_missing_generator_has_the_first_layers(released):
    architecture, kind, base, networks, folder = released
    more = extended(base, kind)
    part = Discriminator(architecture, init_from=str(folder / "discriminator"))
    pair = build_pair(Recipe(part, Generator(depth=0.5)), vocabulary_of(more))
    assert "generator: made from the discriminator's first 1 of 2 released layers" in pair.notes
    assert pair.generator.config.num_hidden_layers == 1
    theirs = networks["discriminator"].base_model.state_dict()
    for name, tensor in pair.generator.base_model.state_dict().items():
        if tensor.shape == theirs[name].shape:
            assert torch.equal(tensor, theirs[name]), name
    scratch = build_pair(Recipe(part, Generator(width=0.5)), vocabulary_of(more))
    assert any("generator: from scratch" in note for note in scratch.notes)


def test_a_missing_discriminator_is_the_encoder_of_the_masked_lm(released):
    architecture, kind, base, networks, folder = released
    more = extended(base, kind)
    generator = Generator(init_from=str(folder / "generator"))
    pair = build_pair(Recipe(Discriminator(architecture), generator), vocabulary_of(more))
    assert any("made from the generator's released encoder" in note for note in pair.notes)
    theirs = networks["generator"].base_model.state_dict()
    for name, tensor in pair.discriminator.base_model.state_dict().items():
        if tensor.shape == theirs[name].shape:
            assert torch.equal(tensor, theirs[name]), name
    deeper = Discriminator(architecture, {"num_hidden_layers": 3})
    scratch = build_pair(Recipe(deeper, generator, Sharing("words")), vocabulary_of(more))
    assert any("num_hidden_layers 3 (2 in generator)" in note for note in scratch.notes)
    assert scratch.discriminator.config.num_hidden_layers == 3


DROPOUT = {"electra": "hidden_dropout_prob", "bert": "hidden_dropout_prob"}


@pytest.mark.parametrize("only", ["generator", "discriminator"])
def test_a_resumed_run_has_the_networks_that_it_was_started_with(released, only, monkeypatch):
    architecture, kind, base, networks, folder = released
    config = {DROPOUT.get(architecture, "mlp_dropout"): 0.25}
    recipe = {
        "generator": Recipe(
            Discriminator(architecture),
            Generator(config=config, init_from=str(folder / "generator")),
        ),
        "discriminator": Recipe(
            Discriminator(architecture, config, init_from=str(folder / "discriminator")),
            Generator(depth=0.5),
        ),
    }[only]
    vocabulary = vocabulary_of(extended(base, kind))
    started = build_pair(recipe, vocabulary)
    run = RunFolder(folder / "run")
    for role in networks:
        getattr(started, role).config.save_pretrained(run.path / "networks" / role)
    monkeypatch.setattr("electrify.training.folder.stored", lambda checkpoints: ["one"])
    resumed = build_pair(run.with_own_sizes(recipe), vocabulary)
    for role in networks:
        before, after = (getattr(pair, role).config.to_dict() for pair in (started, resumed))
        drop = ("_name_or_path", "architectures", "dtype")
        assert {n: v for n, v in before.items() if n not in drop} == {
            n: v for n, v in after.items() if n not in drop
        }


def test_the_masked_lm_head_of_a_release_goes_to_the_made_generator(tmp_path):
    base = TOKENIZERS["wordpiece"]()
    network, _ = build_masked_lm(tiny_recipe("bert"), vocabulary_of(base))
    export_networks({"model": network}, {"model": ""}, base, tmp_path, {}, 64)
    part = Discriminator("bert", init_from=str(tmp_path / "model"))
    pair = build_pair(Recipe(part, Generator(depth=0.5)), vocabulary_of(base))
    head, theirs = (net.cls.predictions.transform.dense.weight for net in (pair.generator, network))
    assert torch.equal(head, theirs)
    assert not any(note.startswith("generator: cls") for note in pair.notes)


def test_a_masked_lm_continues_with_new_tokens(tmp_path):
    base = TOKENIZERS["wordpiece"]()
    network, _ = build_masked_lm(tiny_recipe("bert"), vocabulary_of(base))
    export_networks({"model": network}, {"model": ""}, base, tmp_path, {}, 64)
    recipe = tiny_recipe("bert")
    recipe = replace(recipe, discriminator=Discriminator("bert", init_from=str(tmp_path / "model")))
    more = extended(base, "wordpiece")
    grown, notes = build_masked_lm(recipe, vocabulary_of(more))
    old = ids(base, OLD_TEXT)
    with torch.no_grad():
        now, before = grown.eval()(old).logits, network.eval()(old).logits
    assert torch.allclose(now[..., : base.vocab_size], before, atol=1e-6, rtol=0)
    assert now.shape[-1] == more.vocab_size
    assert any("2 new tokens" in note for note in notes)
    export_networks({"model": grown}, {"model": ""}, more, tmp_path / "out", {}, 64)
    for kind in (AutoModelForMaskedLM, AutoModelForTokenClassification):
        assert kind.from_pretrained(tmp_path / "out/model").config.vocab_size == more.vocab_size


def test_frequencies_set_the_biases_of_new_heads_only(released):
    architecture, _kind, base, networks, folder = released
    vocabulary = vocabulary_of(base)
    counts = torch.arange(vocabulary.size)
    whole = ReplacedTokenDetection.build(from_released(folder, architecture), vocabulary)
    whole.set_output_biases(counts, 0.15)
    bias = networks["generator"].get_output_embeddings().bias
    assert torch.equal(whole.generator.get_output_embeddings().bias, bias)
    part = Discriminator(architecture, init_from=str(folder / "discriminator"))
    made = ReplacedTokenDetection.build(Recipe(part, Generator(depth=0.5)), vocabulary)
    made.set_output_biases(counts, 0.15)
    assert made.generator.get_output_embeddings().bias[-1] > 0.1
    heads = (made.discriminator, networks["discriminator"])
    mine, theirs = ({n: p for n, p in net.named_parameters() if "bias" in n} for net in heads)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("start", ["mean", "random"])
def test_embeddings_that_no_token_has_are_removed(released, start):
    """The vocabularies of ModernBERT and DeBERTa are rounded up for speed."""
    architecture, kind, base, networks, folder = released
    for role, network in networks.items():
        network.resize_token_embeddings(base.vocab_size + 24)
        network.save_pretrained(folder / role)
    old, more = ids(base, OLD_TEXT), extended(base, kind)
    for tokenizer in (base, more):
        pair = build_pair(from_released(folder, architecture, start), vocabulary_of(tokenizer))
        assert any("embeddings that no token has are removed" in note for note in pair.notes)
        words = pair.generator.get_input_embeddings().weight
        assert len(words) == tokenizer.vocab_size == pair.generator.config.vocab_size
        assert pair.discriminator.get_input_embeddings().weight is words
        with torch.no_grad():
            now = pair.generator.eval()(old).logits[..., : base.vocab_size]
            before = networks["generator"](old).logits[..., : base.vocab_size]
        assert torch.allclose(now, before, atol=1e-6, rtol=0)
    pieces = [token.id for token in base.backend.model.tokenize(WORDS[kind][0])]
    mean = words[pieces].mean(0)
    assert torch.allclose(words[base.vocab_size], mean) == (start == "mean")


def test_released_output_embeddings_of_their_own_are_reported(tmp_path):
    base = TOKENIZERS["wordpiece"]()
    network, _ = build_masked_lm(tiny_recipe("bert"), vocabulary_of(base))
    output = network.get_output_embeddings()
    output.weight = torch.nn.Parameter(torch.randn_like(output.weight))
    network.config.tie_word_embeddings = False
    export_networks({"model": network}, {"model": ""}, base, tmp_path, {}, 64)
    part = Discriminator("bert", init_from=str(tmp_path / "model"))
    grown, notes = build_masked_lm(Recipe(part), vocabulary_of(base))
    assert any("released output embeddings" in note for note in notes)
    assert grown.get_output_embeddings().weight is grown.get_input_embeddings().weight


def test_an_architecture_that_transformers_cannot_resize_is_refused(tmp_path):
    base = TOKENIZERS["wordpiece"]()
    network, _ = build_masked_lm(tiny_recipe("mobilebert"), vocabulary_of(base))
    export_networks({"model": network}, {"model": ""}, base, tmp_path, {}, 64)
    part = Discriminator("mobilebert", init_from=str(tmp_path / "model"))
    with pytest.raises(UserError, match="cannot resize the embeddings of mobilebert"):
        build_masked_lm(Recipe(part), vocabulary_of(extended(base, "wordpiece")))
