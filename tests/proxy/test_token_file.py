from pathlib import Path

import pytest

from proxy.files import TokenFileError, read_token


@pytest.mark.parametrize(("content", "token"), [(b"abc.def\n", "abc.def"), (b"  abc\r\n\n", "abc")])
def test_one_token_in_one_line_is_one(tmp_path: Path, content: bytes, token: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    assert read_token(file) == token


@pytest.mark.parametrize("content", [b"", b"two words", b"two\nlines", "näh".encode(), b"\x00"])
def test_a_file_without_one_token_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(TokenFileError) as refused:
        read_token(file)
    assert str(refused.value) == f"{file}: must hold one token in one line, and nothing else"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenFileError, match="none: cannot be read: No such file or directory"):
        read_token(tmp_path / "none")
