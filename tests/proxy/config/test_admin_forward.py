"""The configuration's `admin_forward`."""

import pytest
from pydantic import ValidationError

from proxy.config.sections import AdminForward


@pytest.mark.parametrize(
    ("url", "endpoint", "has_tls"),
    [
        ("http://broker:8080", ("http", "broker", 8080), False),
        ("https://broker/", ("https", "broker", 443), True),
        ("http://[::1]:8080/", ("http", "::1", 8080), False),
    ],
)
def test_a_brokers_web_service(url: str, endpoint: tuple[str, str, int], *, has_tls: bool) -> None:
    section = AdminForward.model_validate({"url": url})
    assert (section.url, section.has_tls) == (endpoint, has_tls)


@pytest.mark.parametrize(
    "url",
    [
        "broker:8080",
        "pulsar://broker:6650",
        "http://",
        "http://broker:0",
        "http://broker:99999",
        "http://broker/admin",
        "http://broker//",
        "http://broker?x",
        "http://broker#x",
        "http://bro ker",
        "http://[::1",
    ],
)
def test_what_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match=r"write it as http://broker:8080|write the listener's port"):
        AdminForward.model_validate({"url": url})


def test_secrets_do_not_stand_in_the_url() -> None:
    with pytest.raises(ValidationError, match=r"name a file with a token in admin_forward\.token"):
        AdminForward.model_validate({"url": "http://me:secret@broker:8080"})


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"token": "/t"}, "token is of no use without url"),
        ({"brokers": ["a:80"]}, "brokers is of no use without url"),
        ({"url": "http://broker:8080", "ca": "/ca"}, "ca is of no use with http"),
    ],
)
def test_keys_that_do_nothing_are_told(values: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        AdminForward.model_validate(values)


def test_it_is_off_unless_told_otherwise() -> None:
    assert AdminForward().url is None
