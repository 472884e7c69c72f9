"""A name may hold an encoded slash; a path may not be another one behind it. test_forwarder.py has it over HTTP."""

import pytest

from proxy.admin.forwarding.paths import last_part, misread

TOPIC = "/admin/v2/persistent/a/b/c"


@pytest.mark.parametrize(
    "path",
    [
        f"{TOPIC}/subscription/a%20b%2Fc%3Bd/skip/5",
        f"{TOPIC}/subscription/a%20b%2Fc%3Bd",
        "/admin/v2/namespaces/a/b/permissions/a+b%2Fc",
        f"{TOPIC}/subscription/x%252Fy%2525",
        f"{TOPIC}/subscription/100%25",
        f"{TOPIC}/subscription/..x%2Fy..",
        f"{TOPIC}/subscription/a%ffb",
    ],
)
def test_names_as_pulsar_admin_writes_them_are_right(path: str) -> None:
    assert misread(path) is None


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "path",
    [
        "/admin/v2%2f..%2f../metrics",
        "/admin/x%2F..%2F..%2Fmetrics",
        "/lookup/v2%2f..%2f..%2fmetrics",
        "/admin/v2%2f%2e%2E/x",
        "/admin/v2/..%3Bx/x",
        f"{TOPIC}/a%2F%2Fb",
        f"{TOPIC}/%3Bb",
        f"{TOPIC}/publishRate%2f",
        f"{TOPIC}/publishRate%3b",
        f"{TOPIC}/a%5Cb",
        f"{TOPIC}/a%00b",
        f"{TOPIC}/a%0Ab",
        f"{TOPIC}/a%C2%85b",
    ],
)
def test_what_leads_elsewhere_is_wrong_however_often_it_is_encoded(path: str, level: int) -> None:
    for _ in range(level):
        path = path.replace("%", "%25")
    assert (misread(path) or "").startswith("write the path without")


def test_nothing_is_decoded_for_ever() -> None:
    assert "more than 4 layers" in (misread(f"{TOPIC}/%{'25' * 2000}41") or "")


@pytest.mark.parametrize("path", ["/admin/v2%u002f..%u002f../metrics", f"{TOPIC}/100%", f"{TOPIC}/a%2"])
def test_what_only_some_decode_is_wrong(path: str) -> None:
    assert misread(path) == "write % as %25"


@pytest.mark.parametrize("path", ["/admin/a/b/publishRate", "/admin/a/b%252FpublishRate", "/admin/a/publishRate%3Bx"])
def test_the_last_part_is_the_last_after_all_decoding(path: str) -> None:
    assert last_part(path) == "publishRate"
