"""Train WordPiece and byte-level BPE reproducibly, and Unigram.

The library's trainers keep words in hash tables whose order changes from run to run. BPE does not
depend on the order. WordPiece breaks ties by it, so it is trained as BPE over marked letters. The
scores of Unigram depend on it too, which cannot be fixed here: they differ by up to 0.01.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from electrify.tokens.encoder import LONGEST_CACHED_WORD, MOST_CACHED_WORDS
from electrify.tokens.tokenizer import (
    LONGEST_WORD,
    OUR_NAMES,
    LoadedTokenizer,
    from_vocabulary,
    with_special_tokens,
)

FIRST_MARK = 0xF0000  # private-use characters, all of which BERT's normalization removes
LETTERS_COVERED = 0.9999
REPEATS_AT_ONCE, LETTERS_AT_ONCE = 1_000, 1_000_000
SCORE_DIGITS = 6

LineBatches = Iterable[list[str]]


def train_wordpiece(
    batches: LineBatches, size: int, min_frequency: int, lowercase: bool, strip_accents: bool
) -> LoadedTokenizer:
    """Train a WordPiece tokenizer like those of BERT and ELECTRA.

    WordPiece is BPE in which a letter at the start of a word differs from the same letter inside
    one. Replacing inner letters by private-use characters makes that distinction for BPE.
    """
    normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    words = count_words(batches, normalizer, pre_tokenizers.BertPreTokenizer())
    letters = frequent_letters(words, most=size // 4)
    marks = {letter: chr(FIRST_MARK + number) for number, letter in enumerate(sorted(letters))}
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    alphabet = [*marks.keys(), *marks.values()]  # every letter can start a word or be inside one
    trainer = _bpe_trainer(size, min_frequency, alphabet)
    backend.train_from_iterator(_marked(words, marks), trainer)
    by_id = sorted(backend.get_vocab().items(), key=lambda item: item[1])
    unmarks = {mark: letter for letter, mark in marks.items()}
    vocabulary = (_unmarked(token, unmarks) for token, _ in by_id)
    return from_vocabulary(vocabulary, lowercase, strip_accents)


def count_words(batches: LineBatches, normalizer: Any, pre_tokenizer: Any) -> Counter[str]:
    """Count the words of a text, in the order of their first occurrence."""
    words: Counter[str] = Counter()
    cache: dict[str, list[str]] = {}
    for batch in batches:
        chunks = Counter(chain.from_iterable(line.split(" ") for line in batch))
        for chunk, count in chunks.items():
            found = cache.get(chunk)
            if found is None:
                split = pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(chunk))
                found = [word for word, _ in split if len(word) <= LONGEST_WORD]
                if len(cache) < MOST_CACHED_WORDS and len(chunk) <= LONGEST_CACHED_WORD:
                    cache[chunk] = found
            for word in found:
                words[word] += count
    return words


def frequent_letters(words: Counter[str], most: int) -> set[str]:
    """Return the letters that cover 99.99 % of the text, and at most `most` of them.

    The others are stray letters of other scripts, which would fill the vocabulary: 2,800 of them in
    70 MB of English Wikipedia.
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
    """Yield lists of words with marked inner letters, each repeated as often as it occurs."""
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
    """Train a byte-level BPE tokenizer like that of RoBERTa, which has no unknown words."""
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
    """Train a Unigram tokenizer like those of SentencePiece and ALBERT; not bit-reproducible."""
    backend = Tokenizer(models.Unigram())
    steps: list[Any] = [normalizers.NFKD() if strip_accents else normalizers.NFKC()]
    steps += [normalizers.StripAccents()] if strip_accents else []
    steps += [normalizers.Lowercase()] if lowercase else []
    backend.normalizer = normalizers.Sequence(steps)
    # Words are split first and then marked, so the tokens of a word do not depend on its position.
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
    # The library reads back only short scores exactly as it wrote them.
    scores = [(token, round(score, SCORE_DIGITS)) for token, score in model["vocab"]]
    backend.model = models.Unigram(scores, unk_id=model["unk_id"])
    return with_special_tokens(backend, OUR_NAMES)
