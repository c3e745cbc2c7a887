"""Train WordPiece, byte-level BPE or Unigram, the first two so that the same text gives the same.

The library's trainers keep words in hash tables whose order changes from run to run. BPE does not
depend on it. WordPiece breaks ties by it, so we train it as BPE over marked letters. Unigram's
scores depend on it in a way that cannot be mended from here: they differ by up to 0.01.
"""

from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from electrify.tokens.tokenizer import (
    LONGEST_WORD,
    OUR_NAMES,
    LoadedTokenizer,
    finished,
    from_vocabulary,
)

FIRST_MARK = 0xF0000  # private-use characters, which BERT's normalisation leaves none of

Batches = Iterable[list[str]]


def train_wordpiece(
    batches: Batches, size: int, min_frequency: int, lowercase: bool, strip_accents: bool
) -> LoadedTokenizer:
    """WordPiece as BERT and ELECTRA have it."""
    words = _MarkedWords(lowercase, strip_accents)
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    marked = ([words.line(line) for line in batch] for batch in batches)
    backend.train_from_iterator(marked, _bpe_trainer(size, min_frequency))
    by_id = sorted(backend.get_vocab().items(), key=lambda item: item[1])
    return from_vocabulary((words.unmarked(token) for token, _ in by_id), lowercase, strip_accents)


class _MarkedWords(dict[str, str]):
    """What stands between two spaces, as words in which every letter but the first is marked.

    WordPiece is BPE in which a letter that begins a word differs from the same letter inside one.
    Giving the inner letters characters of their own says that to BPE without "##" in the way.
    """

    def __init__(self, lowercase: bool, strip_accents: bool) -> None:
        super().__init__()
        self._normalizer = normalizers.BertNormalizer(
            lowercase=lowercase, strip_accents=strip_accents
        )
        self._pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._marks: dict[str, str] = {}

    def line(self, line: str) -> str:
        return " ".join([self[chunk] for chunk in line.split(" ")])

    def __missing__(self, chunk: str) -> str:
        words = self._pre_tokenizer.pre_tokenize_str(self._normalizer.normalize_str(chunk))
        marked = " ".join(self._marked(word) for word, _ in words if len(word) <= LONGEST_WORD)
        self[chunk] = marked
        return marked

    def _marked(self, word: str) -> str:
        marks = self._marks
        inner = (marks.setdefault(letter, chr(FIRST_MARK + len(marks))) for letter in word[1:])
        return word[0] + "".join(inner)

    def unmarked(self, token: str) -> str:
        letters = {mark: letter for letter, mark in self._marks.items()}
        text = "".join(letters.get(character, character) for character in token)
        return f"##{text}" if token[0] in letters else text


def train_bpe(batches: Batches, size: int, min_frequency: int) -> LoadedTokenizer:
    """Byte-level BPE as RoBERTa has it: every text has ids, none is unknown."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(batches, _bpe_trainer(size, min_frequency, sorted(alphabet)))
    return finished(backend, OUR_NAMES)


def _bpe_trainer(size: int, min_frequency: int, alphabet: Iterable[str] = ()) -> Any:
    return trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=list(OUR_NAMES.values()),
        initial_alphabet=list(alphabet),
        show_progress=False,
    )


def train_unigram(
    batches: Batches, size: int, lowercase: bool, strip_accents: bool
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
    return finished(backend, OUR_NAMES)
