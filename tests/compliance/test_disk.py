import pytest

from compliance.session import disk_trouble

FOLDERS = {"--access-log": "/log", "--out": "/log/out"}


def told(said, **folders):
    return disk_trouble(said, folders or FOLDERS)


def test_a_full_disk_names_the_folder_and_the_remedy():
    said = "OSError: [Errno 28] No space left on device: '/log/out/_work/state/step=0/seen.parquet'"
    assert told(said) == f"--out /log/out: {said}; make room there"


def test_the_log_may_be_what_cannot_be_read():
    said = "java.io.FileNotFoundException: /log/a.jsonl (Permission denied)"
    assert told(said) == f"--access-log /log: {said}; let this user read there"


def test_a_name_with_a_colon_is_to_be_changed():
    said = "file:///log/a:b.jsonl: java.net.URISyntaxException: Relative path in absolute URI: .a:b.jsonl.crc"
    assert told(said) == f"--access-log /log: {said}; rename the file: no name that Hadoop reads may have a colon"


@pytest.mark.parametrize("folder", ["file:///a/out", "file:/a/out", "/a/out"])
def test_a_folder_is_found_however_it_is_spelled(folder):
    said = "[Errno 30] Read-only file system: '/a/out/rows'"
    assert disk_trouble(said, {"--out": folder}) == f"--out {folder}: {said}; have it mounted for writing"


def test_without_a_file_it_is_one_of_those_that_are_written():
    said = "java.io.IOException: No space left on device"
    assert told(said) == f"--out or Spark's own folder (--spark spark.local.dir=DIR): {said}; make room there"
    assert disk_trouble(said, {"--access-log": "", "--out": "/b"}) == told(said)


def test_other_troubles_are_none_of_the_disk():
    assert told("java.lang.OutOfMemoryError: /log/out") is None
