import os

import pytest

from proxy.observe import log_writer
from proxy.observe.log_writer import LineRun, LogFile
from tests.access_log_files import content_of
from tests.proxy.observe.log_disk import FussyFile

LINES = LineRun(1, 0, 0, 1, 1)


@pytest.fixture
def synced(monkeypatch):
    """How often something was forced onto the disk."""
    calls: list[object] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    return calls


@pytest.mark.parametrize(("sync", "after_write", "after_all"), [("never", 0, 0), ("close", 0, 2), ("batch", 1, 3)])
def test_a_file_is_forced_onto_the_disk_when_it_was_asked_for(tmp_path, synced, sync, after_write, after_all):
    file = LogFile(tmp_path / ".a", tmp_path / "a", sync, "none")
    assert file.append(b"one\n", LINES, ()) == (1, None)
    assert len(synced) == after_write
    file.close()
    assert file.name()
    assert len(synced) == after_all  # its content, and the name in its folder
    assert (tmp_path / "a").read_bytes() == b"one\n"


def test_a_disk_that_fails_to_keep_it_is_no_loss_for_readers(tmp_path, monkeypatch):
    file = LogFile(tmp_path / ".a", tmp_path / "a", "batch", "none")
    monkeypatch.setattr(os, "fsync", lambda _file: (_ for _ in ()).throw(OSError("broken")))
    kept, error = file.append(b"one\n", LINES, ())
    assert (kept, str(error)) == (1, "broken")
    with pytest.raises(OSError, match="broken"):
        file.close()
    assert (tmp_path / ".a").read_bytes() == b"one\n"


def test_a_file_that_was_deleted_says_so_and_has_no_name_to_get(tmp_path):
    file = LogFile(tmp_path / ".a", tmp_path / "a", "never", "none")
    assert file.append(b"one\n", LINES, ()) == (1, None)
    assert not file.is_gone
    (tmp_path / ".a").unlink()
    assert file.is_gone
    file.close()
    assert not file.name()


def test_a_file_that_somebody_else_named_is_there(tmp_path):
    file = LogFile(tmp_path / ".a", tmp_path / "a", "never", "none")
    (tmp_path / ".a").rename(tmp_path / "a")
    file.close()
    assert file.name()


def test_refused_write_leaves_a_compressed_file_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(log_writer, "FileIO", FussyFile)
    file = LogFile(tmp_path / ".a", tmp_path / "a.jsonl.zst", "never", "zstd")
    assert file.append(b"one\n", LINES, ()) == (1, None)
    monkeypatch.setattr(FussyFile, "takes_at_most", 7)
    kept, error = file.append(b"two\n", LINES, ())
    assert (kept, error is None) == (0, False)
    file.close()
    assert file.name()
    assert content_of(tmp_path / "a.jsonl.zst") == b"one\n"
    assert (file.size, file.lines) == (len(b"one\n"), LINES)
