import pytest

from compliance.session import disk_trouble

FOLDERS = {"--access-log": "/log", "--out": "/log/out"}


def told(text, **folders):
    return disk_trouble(text, folders or FOLDERS)


def test_a_full_disk_names_the_folder_and_the_remedy():
    text = "OSError: [Errno 28] No space left on device: '/log/out/_work/state/step=0/seen.parquet'"
    assert told(text) == f"--out /log/out: {text}; make room there"


def test_the_log_may_be_what_cannot_be_read():
    text = "java.io.FileNotFoundException: /log/a.jsonl (Permission denied)"
    assert told(text) == f"--access-log /log: {text}; let this user read there"


def test_a_name_with_a_colon_is_to_be_changed():
    text = "file:///log/a:b.jsonl: java.net.URISyntaxException: Relative path in absolute URI: .a:b.jsonl.crc"
    assert told(text) == f"--access-log /log: {text}; rename the file: no name that Hadoop reads may have a colon"


@pytest.mark.parametrize("folder", ["file:///a/out", "file:/a/out", "/a/out"])
def test_a_folder_is_found_however_it_is_spelled(folder):
    text = "[Errno 30] Read-only file system: '/a/out/rows'"
    assert disk_trouble(text, {"--out": folder}) == f"--out {folder}: {text}; have it mounted for writing"


def test_without_a_file_it_is_one_of_those_that_are_written():
    text = "java.io.IOException: No space left on device"
    assert told(text) == f"--out or Spark's own folder (--spark spark.local.dir=DIR): {text}; make room there"
    assert disk_trouble(text, {"--access-log": "", "--out": "/b"}) == told(text)


def test_other_troubles_are_none_of_the_disk():
    assert told("java.lang.OutOfMemoryError: /log/out") is None
