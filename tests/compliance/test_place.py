from pathlib import Path

import pytest

from compliance.log_folder import is_url, is_within, on_this_machine


@pytest.mark.parametrize("url", ["file:/a/b", "file:///a/b", "file:////a/b", "file://localhost/a/b", "FILE:///a/b"])
def test_a_file_url_is_a_folder_of_this_machine_however_it_is_spelled(url):
    assert is_url(url)
    assert on_this_machine(url) == Path("/a/b")


@pytest.mark.parametrize("path", ["/a/b", "a/b", "file:a", "/a%20b"])
def test_a_plain_path_is_taken_as_it_is(path):
    assert not is_url(path)
    assert on_this_machine(path) == Path(path)


def test_nothing_in_a_url_is_escaped():
    assert on_this_machine("file:///a%20b") == Path("/a%20b")


@pytest.mark.parametrize("url", ["s3a://bucket/a", "hdfs://host/a", "file://host/a"])
def test_other_urls_are_no_folders_of_this_machine(url):
    assert is_url(url)
    assert on_this_machine(url) is None


@pytest.mark.parametrize(
    ("place", "folder", "is_in"),
    [
        ("/log", "/log", True),
        ("/log/", "file:///log", True),
        ("file:/log/out", "/log", True),
        ("/log/../log/out", "/log", True),
        ("/logs", "/log", False),
        ("/", "/log", False),
        ("s3a://bucket/log/out", "s3a://bucket/log/", True),
        ("s3a://bucket/log", "s3a://bucket/log", True),
        ("s3a://bucket/logs", "s3a://bucket/log", False),
        ("/log", "s3a://log", False),
        ("s3a://log/out", "/log", False),
    ],
)
def test_a_folder_lies_in_another_however_they_are_spelled(place, folder, is_in):
    assert is_within(place, folder) is is_in


def test_links_are_followed(tmp_path):
    (tmp_path / "log").mkdir()
    (tmp_path / "link").symlink_to("log")
    assert is_within(str(tmp_path / "link" / "out"), str(tmp_path / "log"))
