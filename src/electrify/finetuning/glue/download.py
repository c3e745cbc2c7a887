"""`electrify data glue --out DIR`: download GLUE from the Hugging Face Hub.

DIR/cola/train-00000-of-00001.parquet, …    as on the Hub; `electrify glue --data DIR` reads them
DIR/.download                               only while a file is downloaded

A file is there only if it has the size and the SHA-256 that the Hub names, and a rerun downloads
only files that are missing or differ.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electrify.corpora.hub import TIMEOUT, hub_errors, unreachable
from electrify.errors import UserError
from electrify.finetuning.glue.command import task_names
from electrify.finetuning.glue.data import GLUE_ON_HUB, hub_prefix
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.options import GlueData
from electrify.progress import progress
from electrify.storage.commit import committed, describe_damage, left_over
from electrify.storage.lock import hold

STAGING = ".download"


class HubFile(NamedTuple):
    """A file on the Hub."""

    name: str
    size: int
    sha256: str

    @property
    def entry(self) -> dict[str, Any]:
        """Return the entry that a manifest would have."""
        return {"name": self.name, "bytes": self.size, "sha256": self.sha256}


def download_glue(settings: GlueData) -> None:
    """Download the files of some tasks that are missing, and check each."""
    names, out = task_names(settings.tasks), settings.out
    if out.is_file():
        raise UserError(f"{out} is a file", got=f"{out}", fix="use a folder")
    try:
        commit, files = _listed(settings.revision)
    except hub_errors() as error:
        failure = unreachable(GLUE_ON_HUB, settings.revision, error)
        failure.fix = "check the network; without it, copy a GLUE folder from another machine"
        raise failure from error
    wanted = _files_of(names, files, commit)
    staging = out / STAGING
    staging.mkdir(parents=True, exist_ok=True)
    with hold(staging / "lock", f"downloading to {out}"), progress("downloading") as update:
        for path in left_over(out, ["*/*.parquet"]):  # of a killed command
            path.unlink()
        total, done = sum(file.size for file in wanted), 0
        for file in wanted:
            update(done / total, file.name)
            if describe_damage(out, file.entry):
                _fetch(file, commit, out)
            done += file.size
        shutil.rmtree(staging)
    print(f"{out}: {len(wanted)} files of {GLUE_ON_HUB} at {commit}, checked")
    print(f"next: electrify glue MODEL --data {out} --tasks {','.join(names)} --out glue")


def _listed(revision: str) -> tuple[str, list[HubFile]]:
    """Return the commit of a revision, and its Parquet files."""
    import huggingface_hub as hub

    info = hub.HfApi().dataset_info(
        GLUE_ON_HUB, revision=revision, timeout=TIMEOUT, files_metadata=True
    )
    files = [
        HubFile(file.rfilename, file.lfs.size, file.lfs.sha256)
        for file in info.siblings or []
        if file.lfs and file.rfilename.endswith(".parquet")
    ]
    return str(info.sha), files


def _files_of(names: Sequence[str], files: Sequence[HubFile], commit: str) -> list[HubFile]:
    """Return the files of all splits of some tasks; a split without files is an error."""
    wanted = []
    for task in (TASKS[name] for name in names):
        for start in (hub_prefix(task, split) for split in task.files):
            found = [file for file in files if file.name.startswith(start)]
            if not found:
                what = f"{GLUE_ON_HUB} at {commit} lacks files of {task.title}"
                raise UserError(what, got=f"no {start}*.parquet", fix="use another --revision")
            wanted += found
    return wanted


def _fetch(file: HubFile, commit: str, out: Path) -> None:
    """Download a file, resuming a partial download, and commit it if it is intact."""
    import huggingface_hub as hub

    staged = out / STAGING / file.name
    try:
        hub.HfApi().hf_hub_download(
            GLUE_ON_HUB,
            file.name,
            repo_type="dataset",
            revision=commit,
            local_dir=out / STAGING,
        )
    except hub_errors() as error:
        failure = unreachable(f"{GLUE_ON_HUB}/{file.name}", commit, error)
        failure.fix = "run the same command again; finished files are kept"
        raise failure from error
    if damage := describe_damage(out / STAGING, file.entry):
        staged.unlink()
        fix = "run the same command again"
        raise UserError(f"{file.name} was damaged in transfer", got=damage, fix=fix)
    (out / file.name).parent.mkdir(exist_ok=True)
    with committed(out / file.name) as temporary:
        staged.replace(temporary)
