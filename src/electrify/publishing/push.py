"""Upload an export to a repository on the Hugging Face Hub, in one commit.

REPO/                  the encoder, or the folder of sentence-transformers, which has the encoder
    onnx/model.onnx    the same for ONNX Runtime
    ROLE/              the other networks, each with its onnx/model.onnx

A repository therefore has all files of an export or none. Files that it already has are not
uploaded again: those of an upload that was killed before its commit neither, because the Hub keeps
large files by their hash.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha1
from pathlib import Path
from typing import Any, NamedTuple

import huggingface_hub as hub
from huggingface_hub.errors import (
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils._validators import validate_repo_id

from electrify.corpora.hub import hub_errors
from electrify.errors import UserError
from electrify.models.export import ENCODER_ROLE
from electrify.publishing.onnx_export import ONNX_FILE, ONNX_FOLDER
from electrify.storage.commit import sha256_of

MAIN_BRANCH = "main"
BRANCH = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")
STEP_BRANCH = re.compile(r"step-(\d+)")
# Files of earlier uploads, to be removed if they are not uploaded again; all others are kept.
OURS = re.compile(
    r"((discriminator|generator|model|encoder)/)?onnx/model\.onnx|1_Pooling/config\.json"
    r"|(discriminator|generator|model|encoder)/(README\.md|config\.json|model\.safetensors"
    r"|tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|vocab\.txt)"
    r"|modules\.json|config_sentence_transformers\.json|sentence_bert_config\.json"
)
NOT_UPLOADED = ("manifest.json", "README.md")
"""Files of a local folder that the repository does not get; cards are written for it."""


class Repository(NamedTuple):
    """A repository that the user may write to."""

    api: hub.HfApi
    repo: str
    branch: str
    private: bool
    exists: bool

    @property
    def page(self) -> str:
        """Return the address of the repository's branch."""
        tree = "" if self.branch == MAIN_BRANCH else f"/tree/{self.branch}"
        return f"{self.api.endpoint}/{self.repo}{tree}"


def open_repository(repo: str, branch: str, private: bool) -> Repository:
    """Check the name, the token and the repository; nothing is created yet."""
    branch = branch or MAIN_BRANCH
    if not BRANCH.fullmatch(branch):
        raise UserError(
            "--revision must be the name of a branch",
            got=branch,
            fix="use a name such as step-1000",
        )
    if hub.get_token() is None:
        raise UserError(
            "--push needs a token of the Hugging Face Hub",
            got="no token: HF_TOKEN is not set, and nobody is logged in",
            fix="run `hf auth login`, or set HF_TOKEN to a token that may write",
        )
    api = hub.HfApi()
    with _hub_problems(repo, api.endpoint):
        user = api.whoami()
        repo = repo if "/" in repo else f"{user['name']}/{repo}"
        _check_name(repo)
        if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
            raise UserError(
                "--push needs a token that may write",
                got=f"the token of {user['name']} may only read",
                fix="create a token with write access and set HF_TOKEN to it",
            )
        try:
            known = api.model_info(repo)
        except RepositoryNotFoundError:
            return Repository(api, repo, branch, private, exists=False)
    if private and not known.private:
        raise UserError(
            f"{repo} is public, and --private does not change an existing repository",
            got="--private",
            fix="make it private in its settings on the Hub, or use another name",
        )
    return Repository(api, repo, branch, bool(known.private), exists=True)


def _check_name(repo: str) -> None:
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        fix = "use a name such as me/my-model"
        raise UserError("--push must be the name of a repository", got=repo, fix=fix) from error


class _hub_problems:  # noqa: N801
    """Turns what the Hub's client raises into a UserError."""

    def __init__(self, repo: str, endpoint: str) -> None:
        self.repo, self.endpoint = repo, endpoint

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, hub_errors()):
            return
        status = int(getattr(getattr(error, "response", None), "status_code", 0))
        fix = FIXES.get(status, "check the network and run the same command again to resume")
        if isinstance(error, OfflineModeIsEnabled):
            fix = "unset HF_HUB_OFFLINE and run the same command again"
        got = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        what = f"the Hub does not accept {self.repo}" if status else "the Hub cannot be reached"
        raise UserError(what, got=f"{got} ({self.endpoint})", fix=fix) from error


FIXES = {
    401: "the token is not valid: run `hf auth login`, or set HF_TOKEN to a valid one",
    403: "use a token that may write to this repository, or another name",
    404: "check the name of the repository, and that the token may write to it",
}
"""What to do about an HTTP status."""


def repository_files(
    folders: Mapping[str, Path], sentences: Path | None, onnx: Mapping[str, Path]
) -> dict[str, Path]:
    """Return the files to upload by their path in the repository, without cards."""
    files: dict[str, Path] = {}
    for role, folder in folders.items():
        root = role == ENCODER_ROLE
        prefix = "" if root else f"{role}/"
        source = sentences if root and sentences else folder
        for path in _files_of(source):
            files[f"{prefix}{path.relative_to(source).as_posix()}"] = path
        if role in onnx:
            files[f"{prefix}{ONNX_FOLDER}/{ONNX_FILE}"] = onnx[role] / ONNX_FILE
    return files


def _files_of(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in NOT_UPLOADED and not path.name.startswith("."):
            yield path


def push(
    repository: Repository, files: Mapping[str, Path], cards: Mapping[str, str], message: str
) -> str:
    """Create the repository and the branch if necessary, and commit what differs."""
    contents: dict[str, Path | bytes] = {**files}
    contents |= {path: text.encode() for path, text in cards.items()}
    api, repo, branch = repository.api, repository.repo, repository.branch
    with _hub_problems(repo, api.endpoint):
        if not repository.exists:
            api.create_repo(repo, private=repository.private, exist_ok=True)
        if branch != MAIN_BRANCH:
            api.create_branch(repo, branch=branch, exist_ok=True)
        tree = api.list_repo_tree(repo, recursive=True, revision=branch)
        remote = {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}
        new = {p: c for p, c in contents.items() if p not in remote or _differs(c, remote[p])}
        stale = [path for path in remote if OURS.fullmatch(path) and path not in contents]
        kind = "private" if repository.private else "public"
        if not new and not stale:
            return f"{repository.page}: all {len(contents)} files are already there ({kind})"
        api.create_commit(repo, _operations(new, stale), commit_message=message, revision=branch)
    removed = f", {len(stale)} outdated removed" if stale else ""
    return f"{repository.page}: {len(new)} of {len(contents)} files uploaded{removed} ({kind})"


def _operations(new: Mapping[str, Path | bytes], stale: Iterable[str]) -> list[Any]:
    added = [hub.CommitOperationAdd(path, content) for path, content in new.items()]
    return [*added, *(hub.CommitOperationDelete(path) for path in stale)]


def _differs(content: Path | bytes, remote: RepoFile) -> bool:
    """Return whether a file differs from the repository's, by its SHA-256 or its git hash."""
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    if size != remote.size:
        return True
    if remote.lfs is not None:
        return isinstance(content, bytes) or sha256_of(content) != remote.lfs.sha256
    data = content if isinstance(content, bytes) else content.read_bytes()
    return sha1(b"blob %d\0" % len(data) + data).hexdigest() != remote.blob_id
