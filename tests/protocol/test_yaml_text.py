import pytest

from protocol.yaml_text import YamlTextError, read_yaml_text


def test_each_scalar_is_the_text_that_is_written() -> None:
    content = "a: 007\nno: [12:30, 1_000, true, ~]\né: {b: 0.5}\n".encode()
    assert read_yaml_text(content) == {"a": "007", "no": ["12:30", "1_000", "true", "~"], "é": {"b": "0.5"}}


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe\xfd", b"a: \xe9", b"a: \x00"])
def test_text_that_is_no_yaml_is_one_line(content: bytes) -> None:
    with pytest.raises(YamlTextError, match=r"^no valid YAML: [^\n]+$"):
        read_yaml_text(content)
