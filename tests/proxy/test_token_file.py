from pathlib import Path

import pytest

from proxy.files import token_in


@pytest.mark.parametrize(
    ("content", "token"),
    [
        (b"abc.def\n", "abc.def"),
        (b"  abc\r\n\n", "abc"),
        (b"", ""),
        (b"two words", ""),
        (b"two\nlines", ""),
        ("näh".encode(), ""),
        (b"\x00", ""),
    ],
)
def test_one_token_in_one_line_is_one(tmp_path: Path, content: bytes, token: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    assert token_in(file) == token


def test_a_file_that_is_not_there_is_told_by_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        token_in(tmp_path / "token")
