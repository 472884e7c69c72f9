import errno
import os
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.observe.log_writer import KEEP_ALL, Keep, LogName, OwnFiles, Retention
from tests.proxy.odd_files import broken_link, fifo, folder, link_to_fifo

BOOT = "20261121T112900-0a1b2c3d"


def closed(folder, number, age_s=0.0, proxy_id="east"):
    path = folder / LogName(BOOT, number, "none").closed(proxy_id)
    path.write_bytes(b"x" * 10)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def kept(folder, keep):
    deletions = []
    retention = Retention(keep, lambda *deleted: deletions.append(deleted))
    retention.find(OwnFiles(folder, "east"))
    retention.prune()
    deleted = (retention.deleted_files, retention.deleted_bytes)
    assert deletions == ([deleted] if deleted[0] else [])
    return sorted(int(path.stem[-6:]) for path in folder.glob("east-2026*"))


def test_without_a_bound_all_stay(tmp_path):
    for number in range(3):
        closed(tmp_path, number, age_s=1e8)
    assert kept(tmp_path, KEEP_ALL) == [0, 1, 2]


def test_the_oldest_go_until_the_rest_is_small_enough(tmp_path):
    for number in range(5):
        closed(tmp_path, number, age_s=100 - number)
    assert kept(tmp_path, Keep(size=25)) == [3, 4]


def test_the_old_ones_go_with_what_an_earlier_run_left(tmp_path):
    for number in range(4):
        closed(tmp_path, number, age_s=400 - 100 * number)
    assert kept(tmp_path, Keep(age_s=250)) == [2, 3]


def test_other_files_are_never_touched(tmp_path):
    others = [closed(tmp_path, 0, 1e8, "west"), closed(tmp_path, 0, 1e8, "east-2"), tmp_path / "notes.jsonl"]
    others += [tmp_path / LogName(BOOT, 9, "none").unfinished("east"), tmp_path / "east-mine.jsonl"]
    for other in others[2:]:
        other.write_bytes(b"x" * 1000)
    closed(tmp_path, 0, age_s=1e8)
    assert kept(tmp_path, Keep(age_s=1, size=1)) == []
    assert all(other.exists() for other in others)


def test_one_that_somebody_else_deleted_is_gone_all_the_same(tmp_path):
    retention = Retention(Keep(size=10), lambda *_: None)
    for number in range(3):
        retention.add(closed(tmp_path, number))
    (tmp_path / LogName(BOOT, 0, "none").closed("east")).unlink()
    retention.prune()
    assert [path.name for path in tmp_path.iterdir()] == [LogName(BOOT, 2, "none").closed("east")]


def test_one_that_cannot_be_deleted_stays_the_next_to_be(tmp_path, monkeypatch):
    retention = Retention(Keep(size=10), lambda *_: None)
    for number in range(2):
        retention.add(closed(tmp_path, number))
    with monkeypatch.context() as disk:
        disk.setattr(Path, "unlink", refusing)
        for _ in range(2):
            with pytest.raises(OSError, match="000000"):
                retention.prune()
    assert retention.deleted_files == 0
    retention.prune()
    assert retention.deleted_files == 1


def refusing(path, **_):
    raise PermissionError(errno.EPERM, "not now", str(path))


@pytest.mark.parametrize("make", [fifo, folder, link_to_fifo, broken_link])
def test_what_is_no_file_is_passed_over_and_told_and_neither_deleted_nor_in_the_way(tmp_path, make):
    odd = make(tmp_path / LogName(BOOT, 0, "none").closed("east"))
    for number in (1, 2):
        closed(tmp_path, number)
    with capture_logs() as logs:
        assert kept(tmp_path, Keep(size=10)) == [0, 2]
    assert [log["file"] for log in logs] == [str(odd)]
    assert os.path.lexists(odd)


@pytest.mark.parametrize("make", [fifo, folder, link_to_fifo, broken_link])
def test_what_takes_the_place_of_a_file_is_not_deleted(tmp_path, make):
    retention = Retention(Keep(size=10), lambda *_: None)
    first = closed(tmp_path, 0)
    retention.add(first)
    retention.add(closed(tmp_path, 1))
    first.unlink()
    make(first)
    with capture_logs() as logs:
        retention.prune()
    assert (retention.deleted_files, len(logs)) == (0, 1)
    assert os.path.lexists(first)
    retention.add(closed(tmp_path, 2))
    retention.prune()
    assert retention.deleted_files == 1
