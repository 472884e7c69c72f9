"""What requests ask for."""

import re

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from proxy.admin.handlers import Either, Number, Text, asked, explaining
from proxy.policies.bodies import BodyError
from proxy.policies.store import StoreError


def test_each_key_is_known_and_stands_there_once() -> None:
    keys = Text(name="a", meaning="one"), Text(name="b", meaning="another")
    assert asked(make_mocked_request("GET", "/x?a=1"), keys)["a"] == "1"
    with pytest.raises(ValueError, match="'c' is not known here: ask by a, b"):
        asked(make_mocked_request("GET", "/x?c=1"), keys)
    with pytest.raises(ValueError, match="occurs twice"):
        asked(make_mocked_request("GET", "/x?a=1&a=2"), keys)


@pytest.mark.parametrize("query", ["a=a%ff", "a=%c3", "a=%ed%a0%80", "a%ff=1"])
def test_what_is_not_utf_8_is_nobodys_name(query: str) -> None:
    with pytest.raises(ValueError, match="the query is not UTF-8"):
        asked(make_mocked_request("GET", f"/x?{query}"), (Text(name="a", meaning="one"),))


def test_what_is_utf_8_is_read() -> None:
    query = asked(make_mocked_request("GET", "/x?a=%c3%bc+%EF%BF%BD%2F%25"), (Text(name="a", meaning="one"),))
    assert query["a"] == "ü \ufffd/%"


@pytest.mark.parametrize("text", ["two\nlines", "\x00", "\ud800", "x" * 6])
def test_a_text_is_one_line(text: str) -> None:
    key = Text(name="name", meaning="whose", longest=5)
    assert (key.read({}), key.read({"name": "ümläu"})) == ("", "ümläu")
    with pytest.raises(ValueError, match="name: write it in one line of at most 5 characters"):
        key.read({"name": text})


def test_a_text_that_is_needed_has_to_be_there_even_if_empty() -> None:
    key = Text(name="name", meaning="whose limit", is_needed=True)
    assert key.read({"name": ""}) == ""
    with pytest.raises(ValueError, match="name: is needed: whose limit"):
        key.read({})


def test_of_two_words_the_first_is_the_default() -> None:
    key = Either(name="held", meaning="1: only those", words=("0", "1"))
    assert (key.read({}), key.read({"held": "1"})) == ("0", "1")
    with pytest.raises(ValueError, match="held: 'yes' is neither 1 nor 0"):
        key.read({"held": "yes"})


def test_the_page_says_what_is_read() -> None:
    assert Number(name="n", meaning="", default=7, most=10).schema() == {
        "type": "integer",
        "minimum": 1,
        "maximum": 10,
        "default": 7,
    }
    assert Either(name="e", meaning="", words=("0", "1")).schema() == {"enum": ["0", "1"], "default": "0"}
    assert Text(name="t", meaning="", words=("a",)).schema() == {"enum": ["a"]}
    assert re.fullmatch(Text(name="t", meaning="").schema()["pattern"], "Ümläut @ 1")
    assert not re.search(Text(name="t", meaning="").schema()["pattern"], "two\nlines")
    assert Text(name="t", meaning="", longest=5, pattern="[a-z]+").schema() == {
        "type": "string",
        "maxLength": 5,
        "pattern": "^[a-z]+$",
    }


@pytest.mark.parametrize("text", ["0", "11", "-1", "x", "", "٣", "1" * 5000])
def test_a_number_is_within_its_bounds(text: str) -> None:
    key = Number(name="limit", meaning="how many", default=7, most=10)
    assert (key.read({}), key.read({"limit": "10"})) == (7, 10)
    with pytest.raises(ValueError, match="is not a number from 1 to 10"):
        key.read({"limit": text})


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("v"), 400), (BodyError("b"), 400), (StoreError("the disk is full"), 500)]
)
async def test_what_is_wrong_becomes_an_answer(error: Exception, status: int) -> None:
    @explaining
    async def handler(_request: web.Request) -> web.Response:
        raise error

    answer = await handler(make_mocked_request("GET", "/x"))
    assert isinstance(answer, web.Response)
    assert answer.status == status
    assert str(error) in str(answer.text)
