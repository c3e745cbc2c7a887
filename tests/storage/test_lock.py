"""Locks for one process at a time, and file systems without locks."""

import errno
import fcntl

import pytest

from electrify.errors import UserError
from electrify.storage import lock
from electrify.storage.lock import hold


def fails_with(number: int):
    def flock(*_):
        raise OSError(number, "no")

    return flock


@pytest.mark.parametrize("number", sorted(lock.WITHOUT_LOCKS))
def test_a_file_system_without_locks_gives_one_warning(number, monkeypatch, capsys, tmp_path):
    lock._warn.cache_clear()
    monkeypatch.setattr(fcntl, "flock", fails_with(number))
    with hold(tmp_path / "lock", "testing"), hold(tmp_path / "other", "testing"):
        pass
    assert capsys.readouterr().err.count("cannot lock files") == 1


def test_other_errors_are_not_hidden(monkeypatch, tmp_path):
    monkeypatch.setattr(fcntl, "flock", fails_with(errno.EIO))
    with pytest.raises(OSError, match="no"):
        hold(tmp_path / "lock", "testing")


def test_the_error_names_the_holder(tmp_path):
    with hold(tmp_path / "lock", "testing"):
        with pytest.raises(UserError, match="another process is testing") as caught:
            hold(tmp_path / "lock", "testing")
        assert "process" in caught.value.got


def test_a_lock_on_a_deleted_file_is_not_valid(monkeypatch, tmp_path):
    """Its holder may delete the file after it was opened and before it is locked."""
    path, flock = tmp_path / "lock", fcntl.flock

    def removed(file, how):
        monkeypatch.setattr(fcntl, "flock", flock)
        path.unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", removed)
    with hold(path, "testing"), pytest.raises(UserError):
        hold(path, "testing")


def test_a_folder_that_its_holder_removes_is_an_error(monkeypatch, tmp_path):
    """A run that ends before it has started removes its lock and its empty folder."""
    path, flock = tmp_path / "run" / "lock", fcntl.flock
    path.parent.mkdir()

    def removed(file, how):
        path.unlink()
        path.parent.rmdir()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", removed)
    with pytest.raises(UserError, match="another process is testing") as caught:
        hold(path, "testing")
    assert caught.value.fix == "run the same command again"
