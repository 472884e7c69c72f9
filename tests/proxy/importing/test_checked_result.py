"""The result of an import is one that the proxy accepts."""

import pytest

from proxy.importing.result import ImportFailed, check_text


def test_a_result_that_the_proxy_accepts_is_fine() -> None:
    check_text("limits: {each_topic: {publish: {messages: 5}}}\n")
    check_text("# nothing\n")


@pytest.mark.parametrize("text", ["limits: {each_topic: {publish: {messages: 0}}}\n", "unknown: 1\n", "a: b: c\n"])
def test_a_result_that_the_proxy_would_refuse_is_never_written(text: str) -> None:
    with pytest.raises(ImportFailed, match="the result would not be accepted: "):
        check_text(text)
