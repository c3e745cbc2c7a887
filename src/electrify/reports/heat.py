"""Tokens with their predicted probability of being replaced, as a list, JSON and HTML.

A token shows its span of the user's text, by the tokenizer's offsets, so that case, spaces and
emoji are preserved. Tokens that are parts of one character are merged; their highest probability
counts.
"""

# B batch, L length, N slots per row

from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from electrify.batches.batch import Batch
from electrify.batches.keyed_random import key_of, uniforms
from electrify.batches.masking import Masking, choose_slots, mask_tokens
from electrify.errors import UserError, visible
from electrify.objectives.rtd import corrupt
from electrify.reports.examples import CorruptedExample, corrupted_example, validation_batches
from electrify.reports.pair import LoadedPair, replaced_probs, sampled
from electrify.reports.spelling import TokenText, encodable, on_one_line, speller
from electrify.reports.threshold import ONE_HALF, Threshold, of_run
from electrify.tokens.show import plural
from electrify.training.trained import load_trained


class Token(NamedTuple):
    """A token as it is shown."""

    text: str
    original: str
    """The original text if it was replaced, else empty."""
    probability: float
    """The predicted probability that it was replaced."""
    replaced: bool | None
    """Whether it was replaced; None if unknown, as for a text that was typed in."""
    before: str = ""
    """The text between the previous token and this one: spaces, and what the tokenizer drops."""
    threshold: float = ONE_HALF
    """The probability from which it is flagged."""


class Verdict(NamedTuple):
    """The outcome for a token: a name, a sign that needs no colour, and a text."""

    name: str
    sign: str
    text: str


VERDICTS = {
    (True, True): Verdict("caught", "✓", "caught"),
    (True, False): Verdict("missed", "✗", "missed"),
    (False, True): Verdict("false-alarm", "!", "false alarm"),
    (False, False): Verdict("original", "", ""),
    (None, True): Verdict("suspected", "?", "suspected"),
    (None, False): Verdict("unsuspected", "", ""),
}
"""By whether a token was replaced, and whether it is flagged."""


def verdict_on(token: Token) -> Verdict:
    """Return the outcome for a token."""
    return VERDICTS[token.replaced, token.probability >= token.threshold]


def counts(tokens: Sequence[Token]) -> dict[str, int]:
    """Return the number of tokens, and the number with each possible verdict."""
    known = any(token.replaced is not None for token in tokens)
    names = [kind.name for (truth, _), kind in VERDICTS.items() if (truth is not None) == known]
    found = [verdict_on(token).name for token in tokens]
    return {"tokens": len(tokens), **{name: found.count(name) for name in names}}


def counts_text(tokens: Sequence[Token]) -> str:
    """Return the counts and the mean probabilities as one line.

    >>> counts_text([Token("cat", "", 0.9, None), Token("sat", "", 0.3, None)])
    '2 tokens, 1 suspected; mean probability 60 %'
    """
    number = counts(tokens)
    total = plural(number["tokens"], "token")
    if "suspected" in number:
        return f"{total}, {number['suspected']} suspected; mean probability {_mean(tokens)}"
    caught, missed = number["caught"], number["missed"]
    alarms = plural(number["false-alarm"], "false alarm")
    if not caught + missed:
        return f"{total}, none replaced: the generator predicted every token correctly; {alarms}"
    replaced = _mean([token for token in tokens if token.replaced])
    original = _mean([token for token in tokens if not token.replaced])
    return (
        f"{total}, {caught + missed} replaced: {caught} caught, {missed} missed; {alarms}; "
        f"mean probability {replaced} for replaced tokens, {original} for the others"
    )


def caught_text(examples: Iterable[Sequence[Token]], most: int = 5) -> str:
    """Return the longest replaced tokens that were detected, which are mostly whole words.

    >>> caught_text([[Token("banana", "files", 0.93, True), Token("in", "", 0.1, False)]])
    'Replaced tokens that it detects: “banana” (was “files”).'
    """
    caught = [t for tokens in examples for t in tokens if verdict_on(t).name == "caught"]
    caught.sort(key=lambda token: (-len(token.text), -token.probability))
    words = [
        f"“{on_one_line(token.text)}” (was “{on_one_line(token.original)}”)"
        for token in caught[:most]
    ]
    return f"Replaced tokens that it detects: {', '.join(words)}." if words else ""


def _mean(tokens: Sequence[Token]) -> str:
    if not tokens:
        return "–"
    return as_percent(sum(token.probability for token in tokens) / len(tokens))


def as_percent(fraction: float) -> str:
    """Return a probability in percent.

    >>> as_percent(0.934)
    '93 %'
    """
    return f"{round(100 * fraction)} %"


def detect(pair: LoadedPair, text: str) -> list[Token]:
    """Return the tokens of an unchanged text with the discriminator's predictions."""
    text, inputs, spans = _read(pair, text)
    if not spans:
        return []
    probs_L = replaced_probs(pair.discriminator, inputs.ids_BL, inputs)[0].tolist()
    tokens = [
        Token(
            text[span.start : span.stop],
            "",
            max(probs_L[index] for index in span.indices),
            None,
            text[span.previous_stop : span.start],
        )
        for span in spans
    ]
    return with_threshold(tokens, pair.threshold)


def with_threshold(tokens: Sequence[Token], threshold: Threshold) -> list[Token]:
    """Return the tokens of one text with the probability from which they are flagged."""
    lowest = threshold.of([token.probability for token in tokens])
    return [token._replace(threshold=lowest) for token in tokens]


def corrupt_text(pair: LoadedPair, text: str, rate: float, seed: int) -> list[Token]:
    """Let the generator replace some tokens of a text, and return the predictions for it."""
    if pair.generator is None:
        raise UserError(
            f"{pair.name} cannot corrupt texts",
            got="; ".join(pair.notes),
            fix="use the folder of an `electrify export`, which contains both networks",
        )
    if not 0 < rate <= 1:
        raise UserError(
            "--rate must be greater than 0 and at most 1",
            got=f"{rate}",
            fix="use 0.15 to mask 15 % of the tokens, as in pre-training",
        )
    text, inputs, spans = _read(pair, text)
    if not spans:
        return []
    inputs = _with_slots(pair, inputs, rate, seed)
    sampled_BN = sampled(pair.generator, inputs, pair.weights, pair.tokenizer.vocab_size)
    corrupted = corrupt(inputs, sampled_BN)
    probs_L = replaced_probs(pair.discriminator, corrupted.ids_BL, inputs)[0].tolist()
    ids_L, labels_L = corrupted.ids_BL[0].tolist(), corrupted.labels_BL[0].tolist()
    spell = speller(pair.tokenizer)
    tokens: list[Token] = []
    for span in spans:
        original, before = text[span.start : span.stop], text[span.previous_stop : span.start]
        probability = max(probs_L[index] for index in span.indices)
        replaced = any(labels_L[index] for index in span.indices)
        spelled = [spell(ids_L[index]) for index in span.indices]
        shown = "".join(token.text for token in spelled) if replaced else original
        if replaced or (tokens and tokens[-1].replaced):
            before = _space(before, spelled[0], tokens[-1].text if tokens else "", shown)
        tokens.append(Token(shown, original if replaced else "", probability, replaced, before))
    return with_threshold(tokens, pair.threshold)


def _space(before: str, token: TokenText, previous: str, text: str) -> str:
    """Return the space before a token next to a replacement: words are separated, subwords not."""
    if not token.starts_word:
        return before.rstrip(" ")
    touching = not before and previous[-1:].isalnum() and text[:1].isalnum()
    return " " if touching else before


def notes_on(pair: LoadedPair, text: str) -> list[str]:
    """Return caveats about the predictions for a text, such as that it is truncated."""
    backend, room = pair.tokenizer.backend, _room(pair)
    count = len(backend.encode(encodable(text), add_special_tokens=False))
    if count <= room:
        return [*pair.notes]
    note = f"the text is truncated: it has {count:,} tokens, and the model reads the first {room:,}"
    return [*pair.notes, note]


def examples_of_run(run: Path, count: int) -> tuple[list[list[Token]], Threshold]:
    """Return the first validation examples of a run, by its latest intact checkpoint."""
    loaded = load_trained(run)
    task = validation_batches(run, loaded)
    numbers = range(min(count, len(task.batches.examples)))
    spell = speller(loaded.tokenizer)
    threshold = of_run(run, loaded.step)
    found = [corrupted_example(loaded, task, number) for number in numbers]
    return [example_tokens(example, spell, threshold) for example in found], threshold


def example_tokens(
    example: CorruptedExample, spell: Callable[[int], TokenText], threshold: Threshold
) -> list[Token]:
    """Return the tokens of an example, including [CLS] and [SEP]."""
    if example.probs_L is None:
        raise UserError(
            "this run has no discriminator",
            got="a masked-language-model run",
            fix="use a run of replaced token detection",
        )
    tokens: list[Token] = []
    for original, filled, replaced, probability in zip(
        example.ids_L, example.filled_L, example.replaced_L, example.probs_L, strict=True
    ):
        shown = spell(int(filled))
        tokens.append(
            Token(
                shown.text,
                spell(int(original)).text if replaced else "",
                float(probability),
                bool(replaced),
                " " if shown.starts_word and tokens else "",
            )
        )
    return with_threshold(tokens, threshold)


class _Span(NamedTuple):
    """A span of the text, and the tokens that cover it."""

    indices: list[int]
    start: int
    stop: int
    previous_stop: int


def _read(pair: LoadedPair, text: str) -> tuple[str, Batch[Tensor], list[_Span]]:
    """Return the encodable text, its batch of one, and the spans of its tokens."""
    text, backend = encodable(text), pair.tokenizer.backend
    encoding = backend.encode(text, add_special_tokens=False)
    encoding.truncate(_room(pair))
    encoding = backend.post_process(encoding)
    return text, _inputs(encoding), _spans(encoding, text)


def _room(pair: LoadedPair) -> int:
    return pair.longest - int(pair.tokenizer.backend.num_special_tokens_to_add(False))


def _spans(encoding: Any, text: str) -> list[_Span]:
    """Return the spans of the tokens, without the leading spaces that some tokenizers include."""
    spans: list[_Span] = []
    reached = 0
    for index, (start, stop) in enumerate(encoding.offsets):
        if encoding.special_tokens_mask[index]:
            continue
        if spans and stop <= reached:
            spans[-1].indices.append(index)
            continue
        shown = text[max(start, reached) : stop]
        spaces = (len(shown) - len(shown.lstrip())) % max(1, len(shown))
        spans.append(_Span([index], max(start, reached) + spaces, stop, reached))
        reached = stop
    return spans


def _inputs(encoding: Any) -> Batch[Tensor]:
    """Return a batch of one text without slots."""
    ids_BL = torch.tensor([encoding.ids])
    none_BN = torch.zeros(1, 0, dtype=torch.long)
    return Batch(
        ids_BL,
        ids_BL,
        torch.ones_like(ids_BL),
        torch.tensor([encoding.type_ids]),
        none_BN,
        none_BN.float(),
        none_BN.float(),
    )


def _with_slots(pair: LoadedPair, inputs: Batch[Tensor], rate: float, seed: int) -> Batch[Tensor]:
    """Return the batch with a fraction of its tokens masked; the seed decides which."""
    special = pair.tokenizer.special
    ids_BL, key, row_B = inputs.ids_BL.numpy(), (seed, 0), np.zeros(1, dtype=np.int64)
    candidates_BL = ~np.isin(ids_BL, [special.cls, special.sep, special.mask])
    masking = Masking(rate, pair.longest, shown_as_mask=1.0)
    lengths_B = np.array([candidates_BL.sum()])
    slots = choose_slots(candidates_BL, lengths_B, masking, key, row_B)
    masked_BL = mask_tokens(ids_BL, slots, special.mask, masking, key, row_B)
    used = int(slots.weights_BN.sum())
    uniforms_BN = uniforms(key_of(seed, "sample"), row_B, used)
    return inputs._replace(
        masked_BL=torch.from_numpy(masked_BL),
        positions_BN=torch.from_numpy(slots.positions_BN[:, :used]),
        weights_BN=torch.from_numpy(slots.weights_BN[:, :used]),
        uniforms_BN=torch.from_numpy(uniforms_BN).float(),
    )


def heat_html(tokens: Sequence[Token]) -> str:
    """Return tokens as escaped HTML for a page with the stylesheet heat.css."""
    if not tokens:
        return '<p class="heat empty">No tokens.</p>'
    spans = "".join(escape(visible(token.before)) + _token_html(token) for token in tokens)
    return f'<p class="heat" role="list" dir="auto">{spans}</p>'


def _token_html(token: Token) -> str:
    verdict = verdict_on(token)
    label = escape(describe_token(token), quote=True)
    stop = ' tabindex="0"' if verdict.sign else ""  # the others would be hundreds of tab stops
    return (
        f'<span class="token {verdict.name}" role="listitem"{stop} '
        f'style="--heat:{token.probability:.3f}" data-says="{label}" '
        f'aria-label="{label}">{escape(visible(token.text))}</span>'
    )


def describe_token(token: Token) -> str:
    """Return a one-line description of a token.

    >>> describe_token(Token("cat", "dog", 0.934, True))
    'cat · 93 % likely replaced · was “dog” · caught'
    """
    verdict = verdict_on(token)
    parts = [
        on_one_line(token.text),
        f"{as_percent(token.probability)} likely replaced",
        *([f"was “{on_one_line(token.original)}”"] if token.original else []),
        *([verdict.text] if verdict.text else []),
    ]
    return " · ".join(parts)


def as_json(pair: LoadedPair, text: str, tokens: Sequence[Token]) -> dict[str, Any]:
    """Return all that is known about tokens, for scripts and for the page."""
    return {
        "model": pair.name,
        "notes": notes_on(pair, text),
        "counts": counts(tokens),
        "said": f"{counts_text(tokens)}; {pair.threshold}",
        "tokens": [
            {
                **token._asdict(),
                "probability": round(token.probability, 6),
                "verdict": verdict_on(token).name,
                "words": verdict_on(token).text,
                "says": describe_token(token),
            }
            for token in tokens
        ],
    }
