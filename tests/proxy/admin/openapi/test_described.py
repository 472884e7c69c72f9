"""What handlers say of themselves."""

from functools import wraps
from typing import Any

from proxy.admin.handlers import JSON, NOTHING, TEXT, Number, described, description_of

LIMIT = Number(name="limit", meaning="how many", default=1, most=2)


class Rest:
    @described({200: list[str], 204: NOTHING, 503: TEXT}, query=(LIMIT,), refuses=(404,))
    async def get(self) -> None: ...


def test_a_bare_type_is_that_of_json() -> None:
    description = description_of(Rest().get)
    assert description is not None
    assert description.answers == {200: {JSON: list[str]}, 204: {}, 503: {"text/plain": str}}
    assert description.query == (LIMIT,)
    assert description.refuses == {404}


def test_null_is_a_body_and_nothing_is_none() -> None:
    def handler() -> None: ...

    assert getattr(description_of(described({})(handler)), "body", None) is NOTHING
    assert getattr(description_of(described({}, body=None)(handler)), "body", NOTHING) is None


def test_what_is_wrapped_around_a_handler_says_the_same() -> None:
    def wrapped(handler: Any) -> Any:
        @wraps(handler)
        async def answer() -> None: ...

        return answer

    assert description_of(wrapped(Rest().get)) is description_of(Rest().get)
    assert description_of(wrapped) is None
