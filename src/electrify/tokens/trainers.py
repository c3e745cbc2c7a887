"""Train WordPiece, byte-level BPE or Unigram, the first two so that the same text gives the same.

The library's trainers keep words in hash tables whose order changes from run to run. BPE does not
depend on it. WordPiece breaks ties by it, so we train it as BPE over marked letters. Unigram's
scores depend on it in a way that cannot be mended from here: they differ by up to 0.01.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from electrify.tokens.encoder import LONGEST_REMEMBERED, MOST_REMEMBERED
from electrify.tokens.tokenizer import (
    LONGEST_WORD,
    OUR_NAMES,
    LoadedTokenizer,
    from_vocabulary,
    with_special_tokens,
)

FIRST_MARK = 0xF0000  # private-use characters, which BERT's normalisation leaves none of
LETTERS_COVERED = 0.9999
REPEATS_AT_ONCE, LETTERS_AT_ONCE = 1_000, 1_000_000
SCORE_DIGITS = 6

LineBatches = Iterable[list[str]]


def train_wordpiece(
    batches: LineBatches, size: int, min_frequency: int, lowercase: bool, strip_accents: bool
) -> LoadedTokenizer:
    """WordPiece as BERT and ELECTRA have it.

    WordPiece is BPE in which a letter that begins a word differs from the same letter inside one.
    Giving the inner letters characters of their own says that to BPE without "##" in the way.
    """
    normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    words = count_words(batches, normalizer, pre_tokenizers.BertPreTokenizer())
    letters = frequent_letters(words, most=size // 4)
    marks = {letter: chr(FIRST_MARK + number) for number, letter in enumerate(sorted(letters))}
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    alphabet = [*marks.keys(), *marks.values()]  # every letter may begin a word or go on in one
    trainer = _bpe_trainer(size, min_frequency, alphabet)
    backend.train_from_iterator(_marked(words, marks), trainer)
    by_id = sorted(backend.get_vocab().items(), key=lambda item: item[1])
    unmarks = {mark: letter for letter, mark in marks.items()}
    vocabulary = (_unmarked(token, unmarks) for token, _ in by_id)
    return from_vocabulary(vocabulary, lowercase, strip_accents)


def count_words(batches: LineBatches, normalizer: Any, pre_tokenizer: Any) -> Counter[str]:
    """How often each word occurs, in the order of first occurrence."""
    words: Counter[str] = Counter()
    known: dict[str, list[str]] = {}
    for batch in batches:
        chunks = Counter(chain.from_iterable(line.split(" ") for line in batch))
        for chunk, count in chunks.items():
            pieces = known.get(chunk)
            if pieces is None:
                cut = pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(chunk))
                pieces = [word for word, _ in cut if len(word) <= LONGEST_WORD]
                if len(known) < MOST_REMEMBERED and len(chunk) <= LONGEST_REMEMBERED:
                    known[chunk] = pieces
            for piece in pieces:
                words[piece] += count
    return words


def frequent_letters(words: Counter[str], most: int) -> set[str]:
    """The letters of all but a ten-thousandth of the text, and at most so many.

    The rest are strays of other scripts, which would fill the vocabulary: 2,800 of them in 70 MB of
    English Wikipedia.
    """
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            counts[letter] += count
    wanted = LETTERS_COVERED * counts.total()
    covered, chosen = 0, set()
    for letter, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]:
        if covered >= wanted:
            break
        covered += count
        chosen.add(letter)
    return chosen


def _marked(words: Counter[str], marks: dict[str, str]) -> Iterator[list[str]]:
    """Each word as often as it occurs, its inner letters marked, in lists for the trainer."""
    batch: list[str] = []
    size = 0
    for word, count in words.items():
        if not all(letter in marks for letter in word):
            continue
        marked = word[0] + "".join(marks[letter] for letter in word[1:]) + " "
        for start in range(0, count, REPEATS_AT_ONCE):
            batch.append(marked * min(REPEATS_AT_ONCE, count - start))
            size += len(batch[-1])
            if size > LETTERS_AT_ONCE:
                yield batch
                batch, size = [], 0
    yield batch


def _unmarked(token: str, letters: dict[str, str]) -> str:
    text = "".join(letters.get(character, character) for character in token)
    return f"##{text}" if token[0] in letters else text


def train_bpe(batches: LineBatches, size: int, min_frequency: int) -> LoadedTokenizer:
    """Byte-level BPE as RoBERTa has it: every text has ids, none is unknown."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(batches, _bpe_trainer(size, min_frequency, sorted(alphabet)))
    return with_special_tokens(backend, OUR_NAMES)


def _bpe_trainer(size: int, min_frequency: int, alphabet: Iterable[str] = ()) -> Any:
    return trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=list(OUR_NAMES.values()),
        initial_alphabet=list(alphabet),
        show_progress=False,
    )


def train_unigram(
    batches: LineBatches, size: int, lowercase: bool, strip_accents: bool
) -> LoadedTokenizer:
    """Unigram as SentencePiece and ALBERT have it; not the same to the bit when trained again."""
    backend = Tokenizer(models.Unigram())
    steps: list[Any] = [normalizers.NFKD() if strip_accents else normalizers.NFKC()]
    steps += [normalizers.StripAccents()] if strip_accents else []
    steps += [normalizers.Lowercase()] if lowercase else []
    backend.normalizer = normalizers.Sequence(steps)
    # Words are cut apart first and each then marked, so a word's pieces do not depend on its place.
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=size,
        special_tokens=list(OUR_NAMES.values()),
        unk_token=OUR_NAMES["unk"],
        show_progress=False,
    )
    backend.train_from_iterator(batches, trainer)
    model = json.loads(backend.to_str())["model"]
    # The library does not read every score back as it wrote it; short ones it does.
    scores = [(piece, round(score, SCORE_DIGITS)) for piece, score in model["vocab"]]
    backend.model = models.Unigram(scores, unk_id=model["unk_id"])
    return with_special_tokens(backend, OUR_NAMES)
