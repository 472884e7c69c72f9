import os

import pytest

from loadgen.bench_limits.page_file import text_of
from loadgen.bench_limits.table import PageError


def test_a_page_that_is_to_be_made_is_empty(tmp_path):
    page = tmp_path / "page.md"
    assert text_of(page) == ""
    page.write_text("grüße", encoding="utf-8")
    assert text_of(page) == "grüße"


def test_what_cannot_become_a_page_is_told_with_the_remedy(tmp_path, monkeypatch):
    with pytest.raises(PageError, match="it is a folder: name a file"):
        text_of(tmp_path)
    with pytest.raises(PageError, match=r"there is no folder .*: make it"):
        text_of(tmp_path / "nowhere" / "page.md")
    binary = tmp_path / "page.md"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(PageError, match="no text in UTF-8"):
        text_of(binary)
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with pytest.raises(PageError, match="may not be written"):
        text_of(binary)
