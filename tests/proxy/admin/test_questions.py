"""What requests ask for."""

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from proxy.admin.questions import asked, explaining, number
from proxy.policies.bodies import BodyError
from proxy.policies.store import StoreError


def test_each_key_is_known_and_stands_there_once() -> None:
    assert asked(make_mocked_request("GET", "/x?a=1"), "a", "b")["a"] == "1"
    with pytest.raises(ValueError, match="'c' is not known here: ask by a, b"):
        asked(make_mocked_request("GET", "/x?c=1"), "a", "b")
    with pytest.raises(ValueError, match="stands there twice"):
        asked(make_mocked_request("GET", "/x?a=1&a=2"), "a", "b")


@pytest.mark.parametrize("text", ["0", "11", "-1", "x", "", "٣", "1" * 5000])
def test_a_number_is_within_its_bounds(text: str) -> None:
    assert (number({}, "limit", 7, 10), number({"limit": "10"}, "limit", 7, 10)) == (7, 10)
    with pytest.raises(ValueError, match="is not a number from 1 to 10"):
        number({"limit": text}, "limit", 7, 10)


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("v"), 400), (BodyError("b"), 400), (StoreError("the disk is full"), 500)]
)
async def test_what_is_wrong_becomes_an_answer(error: Exception, status: int) -> None:
    @explaining
    async def handler(_request: web.Request) -> web.Response:
        raise error

    answer = await handler(make_mocked_request("GET", "/x"))
    assert answer.status == status
    assert str(error) in str(answer.text)
