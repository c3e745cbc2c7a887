"""Tokens with the probability of having been replaced: from a model to a list, and to HTML.

A token shows a piece of the user's own text, by the tokenizer's offsets, so that case, spaces and
emoji stay what they were. Tokens that are parts of one character are one piece; the likeliest of
them counts.
"""

# B batch, L length, N slots a row

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from electrify.batches.batch import Batch
from electrify.batches.keyed_random import key_of, uniforms
from electrify.batches.masking import Masking, choose_slots, mask_tokens
from electrify.errors import UserError
from electrify.objectives.rtd import corrupt as put_in
from electrify.reports.examples import CorruptedExample, examples, validation_batches
from electrify.reports.pair import LoadedPair, sampled, suspicion
from electrify.reports.spelling import Piece, encodable, on_one_line, speller
from electrify.reports.threshold import ONE_HALF, Threshold, of_run
from electrify.tokens.show import plural, visible
from electrify.training.trained import load_trained


class Token(NamedTuple):
    """A token as people see it."""

    text: str
    original: str
    """What stood here if it was replaced, else nothing."""
    probability: float
    """Of having been replaced, as the discriminator sees it."""
    replaced: bool | None
    """Whether it was; None if nobody knows, as of a text that was typed in."""
    before: str = ""
    """What stands between the token before and this one: spaces, and what the tokenizer drops."""
    threshold: float = ONE_HALF
    """From which probability on it is flagged."""


class Verdict(NamedTuple):
    """What became of a token, as a sign that needs no colour and in words."""

    name: str
    sign: str
    words: str


VERDICTS = {
    (True, True): Verdict("caught", "✓", "caught"),
    (True, False): Verdict("missed", "✗", "missed"),
    (False, True): Verdict("false-alarm", "!", "false alarm"),
    (False, False): Verdict("original", "", ""),
    (None, True): Verdict("suspected", "?", "suspected"),
    (None, False): Verdict("unsuspected", "", ""),
}
"""By whether a token was replaced, and whether the discriminator says so."""


def verdict_on(token: Token) -> Verdict:
    """What became of a token."""
    return VERDICTS[token.replaced, token.probability >= token.threshold]


def counts(tokens: Sequence[Token]) -> dict[str, int]:
    """How many tokens there are, and how many with each verdict that occurs or could."""
    known = any(token.replaced is not None for token in tokens)
    names = [kind.name for (truth, _), kind in VERDICTS.items() if (truth is not None) == known]
    found = [verdict_on(token).name for token in tokens]
    return {"tokens": len(tokens), **{name: found.count(name) for name in names}}


def counted(tokens: Sequence[Token]) -> str:
    """The counts in one line, and how much warmer replaced tokens are than others.

    >>> counted([Token("cat", "", 0.9, None), Token("sat", "", 0.3, None)])
    '2 tokens, 1 suspected; on average 60 %'
    """
    number = counts(tokens)
    total = plural(number["tokens"], "token")
    if "suspected" in number:
        return f"{total}, {number['suspected']} suspected; on average {_mean(tokens)}"
    caught, missed = number["caught"], number["missed"]
    alarms = plural(number["false-alarm"], "false alarm")
    if not caught + missed:
        return f"{total}, none replaced: every guess of the generator was right; {alarms}"
    where = _mean([token for token in tokens if token.replaced])
    elsewhere = _mean([token for token in tokens if not token.replaced])
    return (
        f"{total}, {caught + missed} replaced: {caught} caught, {missed} missed; {alarms}; "
        f"on average {where} where replaced, {elsewhere} elsewhere"
    )


def _mean(tokens: Sequence[Token]) -> str:
    if not tokens:
        return "nothing"
    return as_percent(sum(token.probability for token in tokens) / len(tokens))


def as_percent(share: float) -> str:
    """A probability as people read it.

    >>> as_percent(0.934)
    '93 %'
    """
    return f"{round(100 * share)} %"


def detect(pair: LoadedPair, text: str) -> list[Token]:
    """What the discriminator thinks of a text as it is."""
    text, inputs, places = _read(pair, text)
    if not places:
        return []
    suspicion_L = suspicion(pair.discriminator, inputs.ids_BL, inputs)[0].tolist()
    tokens = [
        Token(
            text[place.start : place.stop],
            "",
            max(suspicion_L[index] for index in place.indices),
            None,
            text[place.end_before : place.start],
        )
        for place in places
    ]
    return judged(tokens, pair.threshold)


def judged(tokens: Sequence[Token], threshold: Threshold) -> list[Token]:
    """The tokens of one text with the probability from which on they are flagged."""
    lowest = threshold.of([token.probability for token in tokens])
    return [token._replace(threshold=lowest) for token in tokens]


def corrupt_text(pair: LoadedPair, text: str, rate: float, seed: int) -> list[Token]:
    """A text in which the generator filled a share of the places, and what is thought of it."""
    if pair.generator is None:
        raise UserError(
            f"{pair.name} cannot corrupt texts",
            got="; ".join(pair.notes),
            fix="give the folder of an `electrify export`, which holds both networks",
        )
    if not 0 < rate <= 1:
        raise UserError("the rate is no share", got=f"{rate}", fix="give more than 0, at most 1")
    text, inputs, places = _read(pair, text)
    if not places:
        return []
    inputs = _with_slots(pair, inputs, rate, seed)
    sampled_BN = sampled(pair.generator, inputs, pair.weights, pair.tokenizer.vocab_size)
    made = put_in(inputs, sampled_BN)
    suspicion_L = suspicion(pair.discriminator, made.ids_BL, inputs)[0].tolist()
    ids_L, labels_L = made.ids_BL[0].tolist(), made.labels_BL[0].tolist()
    spell = speller(pair.tokenizer)
    tokens: list[Token] = []
    for place in places:
        shown, before = text[place.start : place.stop], text[place.end_before : place.start]
        probability = max(suspicion_L[index] for index in place.indices)
        replaced = any(labels_L[index] for index in place.indices)
        pieces = [spell(ids_L[index]) for index in place.indices]
        now = "".join(piece.text for piece in pieces) if replaced else shown
        if replaced or (tokens and tokens[-1].replaced):
            before = _space(before, pieces[0], tokens[-1].text if tokens else "", now)
        tokens.append(Token(now, shown if replaced else "", probability, replaced, before))
    return judged(tokens, pair.threshold)


def _space(before: str, piece: Piece, text_before: str, text: str) -> str:
    """What stands before a token where one was replaced: words stay apart, pieces of one do not."""
    if not piece.begins_word:
        return before.rstrip(" ")
    touching = not before and text_before[-1:].isalnum() and text[:1].isalnum()
    return " " if touching else before


def left_out(pair: LoadedPair, text: str) -> list[str]:
    """In words, how much of a text is past what the model reads; nothing if all of it fits."""
    backend, room = pair.tokenizer.backend, _room(pair)
    count = len(backend.encode(encodable(text), add_special_tokens=False))
    if count <= room:
        return []
    return [f"the text is cut: {count:,} tokens, of which the model reads the first {room:,}"]


def notes_on(pair: LoadedPair, text: str) -> list[str]:
    """What to know before believing what a model says of a text."""
    return [*pair.notes, *left_out(pair, text)]


def examples_of_run(run: Path, count: int) -> tuple[list[list[Token]], Threshold]:
    """The first validation examples of a run, by its newest intact checkpoint."""
    loaded = load_trained(run)
    task = validation_batches(run, loaded)
    numbers = range(min(count, len(task.batches.examples)))
    spell = speller(loaded.tokenizer)
    threshold = of_run(run, loaded.step)
    found = examples(loaded, task, numbers)
    return [judged_tokens(example, spell, threshold) for example in found], threshold


def judged_tokens(
    example: CorruptedExample, spell: Callable[[int], Piece], threshold: Threshold
) -> list[Token]:
    """An example as tokens; [CLS] and [SEP] are among them, as the model sees them."""
    if example.suspicion_L is None:
        raise UserError(
            "this run has no discriminator",
            got="a masked-language-model run",
            fix="give a run of replaced token detection",
        )
    tokens: list[Token] = []
    for original, now, replaced, probability in zip(
        example.ids_L, example.filled_L, example.replaced_L, example.suspicion_L, strict=True
    ):
        piece = spell(int(now))
        tokens.append(
            Token(
                piece.text,
                spell(int(original)).text if replaced else "",
                float(probability),
                bool(replaced),
                " " if piece.begins_word and tokens else "",
            )
        )
    return judged(tokens, threshold)


class _Place(NamedTuple):
    """Tokens that together show a piece of the text which no token before shows."""

    indices: list[int]
    start: int
    stop: int
    end_before: int


def _read(pair: LoadedPair, text: str) -> tuple[str, Batch[Tensor], list[_Place]]:
    """A text as it can be encoded, as a batch of one, and where its tokens are."""
    text, backend = encodable(text), pair.tokenizer.backend
    encoding = backend.encode(text, add_special_tokens=False)
    encoding.truncate(_room(pair))
    encoding = backend.post_process(encoding)
    return text, _inputs(encoding), _places(encoding, text)


def _room(pair: LoadedPair) -> int:
    return pair.longest - int(pair.tokenizer.backend.num_special_tokens_to_add(False))


def _places(encoding: Any, text: str) -> list[_Place]:
    """The tokens of a text, without spaces before them, which some tokenizers count to them."""
    places: list[_Place] = []
    reached = 0
    for index, (start, stop) in enumerate(encoding.offsets):
        if encoding.special_tokens_mask[index]:
            continue
        if places and stop <= reached:
            places[-1].indices.append(index)
            continue
        shown = text[max(start, reached) : stop]
        spaces = (len(shown) - len(shown.lstrip())) % max(1, len(shown))
        places.append(_Place([index], max(start, reached) + spaces, stop, reached))
        reached = stop
    return places


def _inputs(encoding: Any) -> Batch[Tensor]:
    """A batch of one text and no slots."""
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
    """The batch with [MASK] in a share of its places; the same seed chooses the same ones."""
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
    """Tokens as HTML that is safe to put into a page with the stylesheet heat.css."""
    if not tokens:
        return '<p class="heat empty">no tokens</p>'
    spans = "".join(escape(visible(token.before)) + _span(token) for token in tokens)
    return f'<p class="heat" role="list" dir="auto">{spans}</p>'


def _span(token: Token) -> str:
    kind = verdict_on(token)
    said = escape(describe_token(token), quote=True)
    stop = ' tabindex="0"' if kind.sign else ""  # the others would be hundreds of stops
    return (
        f'<span class="token {kind.name}" role="listitem"{stop} '
        f'style="--heat:{token.probability:.3f}" data-says="{said}" '
        f'aria-label="{said}">{escape(visible(token.text))}</span>'
    )


def describe_token(token: Token) -> str:
    """One line about a token.

    >>> describe_token(Token("cat", "dog", 0.934, True))
    'cat · 93 % likely replaced · was “dog” · caught'
    """
    kind = verdict_on(token)
    parts = [
        on_one_line(token.text),
        f"{as_percent(token.probability)} likely replaced",
        *([f"was “{on_one_line(token.original)}”"] if token.original else []),
        *([kind.words] if kind.words else []),
    ]
    return " · ".join(parts)


def as_json(pair: LoadedPair, text: str, tokens: Sequence[Token]) -> dict[str, Any]:
    """All that is known of some tokens, for scripts and for the page."""
    return {
        "model": pair.name,
        "notes": notes_on(pair, text),
        "counts": counts(tokens),
        "said": f"{counted(tokens)}; {pair.threshold}",
        "tokens": [
            {
                **token._asdict(),
                "probability": round(token.probability, 6),
                "verdict": verdict_on(token).name,
                "words": verdict_on(token).words,
                "says": describe_token(token),
            }
            for token in tokens
        ],
    }
