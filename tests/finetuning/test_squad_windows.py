"""Windows and alignment: compare with the official code, and map answers back to their text."""

import numpy as np
import pytest
from tests.conftest import WORDS
from tests.finetuning.squad_files import paragraphs, question, write_squad
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from electrify.errors import UserError
from electrify.finetuning.encoder import Encoder, open_encoder
from electrify.finetuning.squad import windows as squad_windows
from electrify.finetuning.squad.data import Gold, read_questions
from electrify.finetuning.squad.metrics import normalize_answer
from electrify.finetuning.squad.windows import (
    TokenizedText,
    build_windows,
    find_frame,
    window_spans,
)

# The windows of google-research/electra by the tokens of the context and of the question, at
# length 512 and stride 128.
OFFICIAL = {
    (1000, 10): [(0, 499), (128, 499), (256, 499), (384, 499), (512, 488)],
    (499, 10): [(0, 499)],
    (500, 10): [(0, 499), (128, 372)],
    (300, 64): [(0, 300)],
}


@pytest.mark.parametrize(("tokens", "asked"), OFFICIAL)
def test_windows_match_the_official_code(tokens, asked):
    assert window_spans(tokens, 512 - 3 - asked, 128) == OFFICIAL[tokens, asked]


@pytest.mark.parametrize(
    ("tokens", "room", "stride"), [(0, 5, 2), (1, 1, 9), (23, 5, 9), (23, 5, 1)]
)
def test_windows_cover_the_context_whatever_the_stride(tokens, room, stride):
    found = window_spans(tokens, room, stride)
    covered = {token for start, count in found for token in range(start, start + count)}
    assert covered == set(range(tokens))
    assert all(count <= room for _, count in found)


@pytest.fixture
def encoder(encoder_folder):
    return open_encoder(str(encoder_folder))


@pytest.fixture
def questions(tmp_path):
    return read_questions(write_squad(tmp_path / "a.json", paragraphs(20)), "1.1")


def byte_level() -> Encoder:
    """Return a tokenizer like RoBERTa's: byte-level BPE, no types, two tokens between the texts."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>", "<pad>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )  # fmt: skip
    backend.train_from_iterator([" ".join(WORDS)], trainer)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=False, add_prefix_space=True
    )
    from transformers import PreTrainedTokenizerFast

    wrapped = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>")
    return Encoder("byte level", None, wrapped)


def texts_at_targets(windows) -> list[str]:
    """Return the windows with answers, and the text at the target of each."""
    found = []
    for window in windows.windows:
        if window.answer:
            first, last = (
                position - windows.offset(window) + window.start
                for position in windows.target(window)
            )
            found.append((window, windows.text(window.question, first, last)))
    return found


def test_the_target_of_every_window_is_the_gold_answer(encoder, questions):
    windows = build_windows(encoder, questions, 16, 4, learn=True)
    assert len(windows.windows) > len(questions)
    found = texts_at_targets(windows)
    assert {window.question for window, _ in found} == set(range(len(questions)))
    for window, text in found:
        gold = windows.questions[window.question].answers[0].text
        assert normalize_answer(text) == normalize_answer(gold)
        first, last = windows.target(window)
        ids = windows.row(window)[0][first : last + 1].tolist()
        assert encoder.tokenizer.decode(ids) == gold
    assert windows.counts["inexact"] == windows.counts["dropped"] == windows.counts["repaired"] == 0


def test_windows_without_the_complete_answer_are_kept_and_point_at_cls(encoder, questions):
    windows = build_windows(encoder, questions, 16, 4, learn=True)
    numbers = [i for i, window in enumerate(windows.windows) if not window.answer]
    assert numbers
    batch = windows.collate(np.asarray(numbers))
    assert not batch.starts_B.any()
    assert not batch.ends_B.any()
    assert (
        not batch.impossible_B.any()
    )  # the question has an answer, which is what counts officially


def test_a_batch_is_padded_framed_and_masked_like_the_official_code(encoder):
    asked = [
        question("kata loso", "loso", "a", "mita"),
        question("kata " * 3, None, "b", "nuso pedi"),
    ]
    windows = build_windows(encoder, asked, 64, 128, learn=True)
    batch = windows.collate(np.asarray([1, 0]))
    tokens = [encoder.tokenizer.convert_ids_to_tokens(row) for row in batch.ids_BL.tolist()]
    for number, row in zip((1, 0), tokens, strict=True):
        length = windows.lengths[number]
        assert row[0] == "[CLS]"
        assert row[length - 1] == "[SEP]"
        assert set(row[length:]) <= {"[PAD]"}
    assert batch.attention_BL.sum(dim=1).tolist() == [windows.lengths[1], windows.lengths[0]]
    segment = batch.types_BL.float()
    segment[:, 0] = 1
    assert (batch.allowed_BL == segment).all()
    assert batch.impossible_B.tolist() == [1.0, 0.0]
    assert batch.starts_B[0] == batch.ends_B[0] == 0


def test_tokenizers_without_types_and_with_other_frames(questions):
    encoder = byte_level()
    frame = find_frame(encoder)
    assert [len(part) for part in frame.ids] == [1, 2, 1]
    windows = build_windows(encoder, questions, 24, 8, learn=True)
    assert windows.counts["inexact"] == 0
    for window, text in texts_at_targets(windows):
        assert text == windows.questions[window.question].answers[0].text
    full = encoder.tokenizer.backend_tokenizer.encode(questions[0].text, questions[0].context)
    alone = build_windows(encoder, questions[:1], 128, 128, learn=False)
    assert alone.row(alone.windows[0])[0].tolist() == full.ids
    assert alone.collate(np.asarray([0])).allowed_BL.sum() == 1 + len(alone.contexts[0].ids) + 1


def test_accents_and_spaces_keep_their_positions(encoder):
    context = "  LÓSO\u00a0\u00a0kàta,\t mita\n"
    windows = build_windows(encoder, [question(context, "kàta")], 64, 128, learn=True)
    [(_, text)] = texts_at_targets(windows)
    assert text == "kàta"


def shifted_characters(tokens: TokenizedText) -> TokenizedText:
    return TokenizedText(tokens.ids, tokens.starts + 1, tokens.ends + 1)


def shifted_back(tokens: TokenizedText) -> TokenizedText:
    return TokenizedText(
        tokens.ids, np.maximum(tokens.starts - 1, 0), np.maximum(tokens.ends - 1, 0)
    )


def shifted_tokens(tokens: TokenizedText) -> TokenizedText:
    return TokenizedText(np.roll(tokens.ids, 1), tokens.starts, tokens.ends)


@pytest.mark.parametrize("shift", [shifted_characters, shifted_back, shifted_tokens])
def test_a_shifted_alignment_is_caught(encoder, questions, monkeypatch, shift):
    correct = squad_windows.tokens_with_offsets

    def wrong(encoder, texts):
        return [shift(tokens) for tokens in correct(encoder, texts)]

    monkeypatch.setattr(squad_windows, "tokens_with_offsets", wrong)
    with pytest.raises(UserError, match=r"do not (lead back|decode)"):
        build_windows(encoder, questions, 64, 128, learn=True)


@pytest.mark.parametrize("shift", [-1, 1])
def test_targets_off_by_one_token_are_caught(encoder, questions, monkeypatch, shift):
    correct = squad_windows._token_span

    def wrong(context, span):
        first, last = correct(context, span)
        return max(first + shift, 0), min(last + shift, len(context.ids) - 1)

    monkeypatch.setattr(squad_windows, "_token_span", wrong)
    with pytest.raises(UserError, match="do not lead back"):
        build_windows(encoder, questions, 64, 128, learn=True)


def test_a_wrong_frame_is_caught(encoder, questions, monkeypatch):
    monkeypatch.setattr(squad_windows.Windows, "target", lambda windows, window: window.answer)
    with pytest.raises(UserError, match="do not decode"):
        build_windows(encoder, questions, 64, 128, learn=True)


def test_misplaced_answers_are_counted(encoder):
    context = "loso kata mita nuso"
    asked = [
        question(context, "mita", "a"),
        question(context, "mita", "b")._replace(answers=(Gold("mita", 3),)),
        question(context, "mita", "c")._replace(answers=(Gold("nowhere", 3),)),
        question(context, "nuso", "d"),
        question(context, "kat", "e"),
    ]
    windows = build_windows(encoder, asked, 64, 128, learn=True)
    assert windows.counts == {
        "questions": 4, "windows": 4, "repaired": 1, "dropped": 1, "inexact": 1,
    }  # fmt: skip


def test_nothing_to_learn_is_an_error(encoder):
    lost = question("loso kata", "loso")._replace(answers=(Gold("nowhere", 0),))
    with pytest.raises(UserError, match="nothing to learn"):
        build_windows(encoder, [lost], 64, 128, learn=True)


def test_too_little_room_is_an_error(encoder):
    asked = [question("kata loso", "loso", text="kata " * 50)]
    with pytest.raises(UserError, match="no room"):
        build_windows(encoder, asked, 40, 128, learn=True)
    with pytest.raises(UserError, match="--stride"):
        build_windows(encoder, asked, 64, 0, learn=True)
