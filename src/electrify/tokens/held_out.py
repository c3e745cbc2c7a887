"""Which text of folders of documents is for training, validation and testing."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from electrify.corpora.document import read_parquet, row_groups
from electrify.errors import UserError
from electrify.storage.commit import read_manifest
from electrify.tokens.splits import Splits, may_be_too_few, splits_for


def splits_of_documents(docs: Sequence[Path], validation: float, test: float) -> Splits:
    """Return how to split documents; if there are few, after measuring each split's share."""
    documents = sum(read_manifest(folder, "documents")["documents"] for folder in docs)
    if not may_be_too_few(documents, validation, test):
        return Splits(validation, test)
    groups = [group for folder in docs for group in row_groups(folder)]
    return splits_for((document.text for document in read_parquet(groups)), validation, test)


def check_fractions(validation: float, test: float) -> None:
    """Refuse fractions that leave no text for training."""
    if not (validation >= 0 and test >= 0 and validation + test < 1):  # also refuses NaN
        raise UserError(
            "--validation and --test must be fractions that add up to less than 1",
            got=f"{validation} and {test}",
            fix="use 0 or more for each, such as 0.01",
        )


def texts_of_split(
    docs: Sequence[Path], name: str, validation: float, test: float
) -> Iterator[str]:
    """Yield the texts that `prepare` puts into a split, with the same fractions."""
    splits = splits_of_documents(docs, validation, test)
    groups = [group for folder in docs for group in row_groups(folder)]
    for document in read_parquet(groups):
        yield from (text for split, text in splits.of(document.text) if split == name)
