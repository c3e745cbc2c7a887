"""Fill a template with each label, and find the tokens of the label in it."""

from collections.abc import Sequence
from typing import NamedTuple

from electrify.errors import UserError
from electrify.finetuning.encoder import Encoder, Encoding, encode

TEXT_FIELD, LABEL_FIELD = "{text}", "{label}"


class FilledTemplate(NamedTuple):
    """A text in a template with one of the labels, tokenized."""

    encoding: Encoding
    unscored: tuple[int, ...]
    """1 for every token that is not part of the label."""


class Template(NamedTuple):
    """The characters before the text, between text and label in either order, and after both."""

    parts: tuple[str, str, str]
    label_first: bool

    def fill(self, text: str, label: str) -> tuple[str, int]:
        """Return the template with a text and a label, and where the label starts.

        >>> parse_template("It was {label}.").fill("A film.", "great")
        ('A film. It was great.', 15)
        """
        before, between, after = self.parts
        first, second = (label, text) if self.label_first else (text, label)
        start = len(before) + (0 if self.label_first else len(first) + len(between))
        return f"{before}{first}{between}{second}{after}", start


def parse_template(template: str) -> Template:
    """Split a template; without {text}, the text and a space are put before it."""
    full = template if TEXT_FIELD in template else f"{TEXT_FIELD} {template}"
    for name in (LABEL_FIELD, TEXT_FIELD):
        if full.count(name) != 1:
            raise UserError(
                f"--template must contain {name} {'' if name == LABEL_FIELD else 'at most '}once",
                got=repr(template),
                fix='use a template such as "It was {label}."',
            )
    first, second = sorted((LABEL_FIELD, TEXT_FIELD), key=full.index)
    before, rest = full.split(first)
    between, after = rest.split(second)
    return Template((before, between, after), first == LABEL_FIELD)


def parse_labels(labels: str, flag: str = "--labels great,terrible") -> tuple[str, ...]:
    """Return comma-separated labels: two or more, all different; `flag` is an example.

    >>> parse_labels("great, terrible")
    ('great', 'terrible')
    """
    found = tuple(label.strip() for label in labels.split(","))
    if len(found) < 2 or len(set(found)) < len(found) or not all(found):
        raise UserError(
            f"{flag.split()[0]} must name two or more different labels",
            got=repr(labels),
            fix=f"separate them by commas: {flag}",
        )
    return found


def fill_template(
    encoder: Encoder, template: Template, labels: Sequence[str], texts: Sequence[str], length: int
) -> tuple[list[FilledTemplate], int]:
    """Return every text with every label, in this order, and how many texts were truncated.

    Only texts are truncated, never the template.
    """
    backend = encoder.tokenizer.backend_tokenizer
    shells = [template.fill("", label)[0] for label in labels]
    longest = max(map(len, backend.encode_batch(shells)))
    room = length - longest
    if room < 1:
        raise UserError(
            "the template leaves no room for text",
            got=f"{longest} tokens of at most {length}",
            fix="use a shorter --template, or a larger --length",
        )
    encodings = backend.encode_batch(list(texts), add_special_tokens=False)
    pairs = zip(texts, encodings, strict=True)
    kept = [text[: e.offsets[room - 1][1]] if len(e) > room else text for text, e in pairs]
    filled = [(*template.fill(text, label), label) for text in kept for label in labels]
    # Two tokens may become three where the text was cut.
    tokenized = encode(encoder, [sentence for sentence, _, _ in filled], None, encoder.longest)
    found = [
        FilledTemplate(encoding, _unscored(encoding, start, label))
        for encoding, (_, start, label) in zip(tokenized, filled, strict=True)
    ]
    return found, sum(len(encoding) > room for encoding in encodings)


def _unscored(encoding: Encoding, start: int, label: str) -> tuple[int, ...]:
    """Return 0 for tokens that contain a character of the label and 1 for all others."""
    special = encoding.special_tokens_mask
    outside = tuple(
        int(bool(added) or low >= start + len(label) or high <= start)
        for added, (low, high) in zip(special, encoding.offsets, strict=True)
    )
    if all(outside):
        raise UserError(
            "the tokenizer has no token for a label",
            got=repr(label),
            fix="use another word in --labels",
        )
    return outside
