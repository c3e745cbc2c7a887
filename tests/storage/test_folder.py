"""The protocol of folders that commands make: lock, identity first, refusal of other settings."""

import shutil
from pathlib import Path

import pytest

from electrify.errors import UserError
from electrify.storage.build import Build
from electrify.storage.commit import write_json
from electrify.storage.folder import Claim, refuse_other


def claim(folder: Path, written=("run.json",), **options) -> Claim:
    return Claim(folder, "run.json", "lock", doing="testing", written=written, **options)


def test_one_process_at_a_time(tmp_path):
    with claim(tmp_path / "run"), pytest.raises(UserError, match="another process is testing"):
        claim(tmp_path / "run")


def test_a_claim_without_identity_leaves_nothing(tmp_path):
    with claim(tmp_path / "new/run"):
        assert (tmp_path / "new/run/lock").exists()
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine").mkdir()
    with claim(tmp_path / "mine"):
        pass
    assert (tmp_path / "mine").is_dir()  # it existed before the claim


def test_a_claim_with_a_lock_in_a_subfolder_leaves_nothing(tmp_path):
    claimed = Claim(tmp_path / "a/out", ".parts/settings.json", ".parts/lock", "testing", ())
    shutil.rmtree(tmp_path / "a/out/.parts")
    claimed.close()
    assert not list(tmp_path.iterdir())


def test_a_folder_with_identity_stays_and_can_be_claimed_again(tmp_path):
    run = tmp_path / "run"
    with claim(run):
        write_json(run / "run.json", {"seed": 1})
    (run / "notes.txt").write_text("a file of the user")
    with claim(run):
        pass
    assert {path.name for path in run.iterdir()} == {"lock", "run.json", "notes.txt"}


def test_half_written_files_of_a_killed_process_are_removed(tmp_path):
    run = tmp_path / "run"
    (run / "tokenizer").mkdir(parents=True)
    (run / ".run.json.77.tmp").write_text("{")
    (run / "tokenizer/.vocab.txt.77.tmp").write_text("a")
    with claim(run, early=("tokenizer",), written=("run.json", "tokenizer/*")):
        assert not list(run.rglob("*.tmp"))


@pytest.mark.parametrize(
    "name", [".notes.tmp", ".notes.txt.77.tmp", ".run.json.old.77.tmp", "glue/.run.json.77.tmp"]
)
def test_temporary_files_of_others_stay(tmp_path, name):
    """Files of the user, or of a command in a subfolder, such as `glue --out RUN/glue`."""
    run = tmp_path / "run"
    with claim(run):
        write_json(run / "run.json", {})
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_text("x")
    with claim(run):
        assert (run / name).exists()


def test_a_build_removes_only_its_own_half_written_files(tmp_path):
    out = tmp_path / "out"
    with Build(out, "model", {}, files=["part-*", "encoder/*"]):
        pass
    ours = ["settings.toml", "part-0", "encoder/weights", ".parts/settings.json", ".parts/a/b/0"]
    files = [out / name for name in (*ours, "glue/table")]
    temporary = [path.with_name(f".{path.name}.77.tmp") for path in files]
    for path in temporary:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with Build(out, "model", {}, files=["part-*", "encoder/*"]):
        assert [path for path in temporary if path.exists()] == temporary[-1:]


def test_a_half_written_identity_in_a_subfolder_is_recognized(tmp_path):
    (tmp_path / ".parts").mkdir()
    (tmp_path / ".parts/.settings.json.77.tmp").touch()
    with Claim(tmp_path, ".parts/settings.json", "lock", "testing", [".parts/*"]):
        assert not list(tmp_path.rglob("*.tmp"))


def test_a_claim_that_fails_releases_the_lock(tmp_path, monkeypatch):
    (tmp_path / ".run.json.77.tmp").touch()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: 1 / 0)
        with pytest.raises(ZeroDivisionError) as kept:
            claim(tmp_path)
    assert kept.value is not None  # its traceback references the claim
    with claim(tmp_path):
        pass


def test_a_build_releases_the_lock_however_it_ends(tmp_path):
    out, kept = tmp_path / "out", []
    with pytest.raises(KeyboardInterrupt) as error, Build(out, "shards", {"x": 1}):
        raise KeyboardInterrupt
    kept.append(error)
    with pytest.raises(UserError, match="other settings") as error:
        Build(out, "shards", {"x": 2})
    kept.append(error)
    with Build(out, "shards", {"x": 1}) as build:
        (build.staging / "stage").mkdir()
        (build.staging / "stage/0").touch()
        build.withdraw()
        with Build(out, "shards", {"x": 1}) as again:
            again.finish({})


@pytest.mark.parametrize("name", ["thesis.tex", "metrics.jsonl", ".thesis.tex.77.tmp"])
def test_folders_of_others_are_not_touched(tmp_path, name):
    (tmp_path / name).write_text("x")
    with pytest.raises(UserError, match="contains files of another project") as error:
        claim(tmp_path, strange="files of another project")
    assert error.value.got == name
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_in_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / "out").write_text("x")
    with pytest.raises(UserError, match="is a file"):
        claim(tmp_path / "out")
    with pytest.raises(UserError, match="cannot be created"):
        claim(tmp_path / "out/inside")


def test_another_identity_is_refused():
    words = {"others": "another recipe or other data", "was": "was started"}
    refuse_other(Path("run"), {"seed": 1, "log": 2}, {"seed": 1, "log": 3}, free={"log"}, **words)
    with pytest.raises(UserError) as error:
        refuse_other(Path("run"), {"seed": 1}, {"seed": 2}, **words)
    assert error.value.what == "run was started with another recipe or other data"
    assert error.value.got == "seed: the folder has 1, the command says 2"
    assert error.value.fix == "use the same ones, or another --out; nothing was touched"


def test_the_error_names_the_change_that_a_folder_predates():
    later = {"init_head": "heads were drawn by the seed"}
    new = {"seed": 1, "preset": "b", "init_head": "new"}
    with pytest.raises(UserError, match="was made before heads were drawn by the seed"):
        refuse_other(
            Path("job"),
            {"seed": 1, "preset": "a"},
            new,
            others="other settings",
            later=later,
            free_later={"preset"},
        )
    with pytest.raises(UserError, match="was made with other settings"):
        refuse_other(Path("job"), {"seed": 2}, new, others="other settings", later=later)


def test_early_files_are_those_of_a_process_that_had_the_lock(tmp_path):
    run = tmp_path / "run"
    (run / "tokenizer").mkdir(parents=True)
    with pytest.raises(UserError, match="contains files that electrify did not make") as error:
        claim(run, early=("tokenizer",))
    assert error.value.got == "tokenizer"
    (run / "lock").touch()  # of a process that was killed
    with claim(run, early=("tokenizer",)):
        pass
    assert (run / "lock").exists()  # so that the next process knows whose they are
    with claim(run, early=("tokenizer",)):
        pass


@pytest.mark.parametrize("name", [".parts/notes.txt", ".parts/a/b.txt", ".parts/.a.77.tmp"])
def test_a_build_leaves_a_folder_of_the_same_name_alone(tmp_path, name):
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(UserError, match="contains files that electrify did not make") as error:
        Build(tmp_path / "out", "documents", {})
    assert error.value.got == name
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


def test_a_finished_build_removes_only_its_own_parts(tmp_path):
    with Build(tmp_path, "model", {}) as build:
        build.finish({"files": []})
    (tmp_path / ".parts").mkdir()
    (tmp_path / ".parts/lock").touch()  # of a process killed after the last commit
    assert Build(tmp_path, "model", {}).finished
    assert not (tmp_path / ".parts").exists()
    (tmp_path / ".parts").mkdir()
    (tmp_path / ".parts/notes.txt").write_text("mine")
    assert Build(tmp_path, "model", {}).finished
    assert (tmp_path / ".parts/notes.txt").exists()


@pytest.mark.parametrize("name", [".notes.txt.77.tmp", ".documents.77.tmp"])
def test_a_build_that_resumes_leaves_temporary_files_of_others(tmp_path, name):
    files = {"files": ["documents-*.parquet"]}
    with Build(tmp_path, "documents", {}, **files):
        pass
    (tmp_path / name).write_text("mine")
    (tmp_path / ".documents-00000.parquet.77.tmp").write_text("ours")
    with Build(tmp_path, "documents", {}, **files):
        assert [path.name for path in tmp_path.glob(".*.tmp")] == [name]
