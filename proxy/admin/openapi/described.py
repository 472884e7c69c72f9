"""What a handler says of itself: what it asks for and what it answers, by the types and keys that it uses."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from proxy.admin.questions import Key

JSON = "application/json"
Content = Mapping[str, Any]
"""Types by media type; empty for no body."""
NOTHING: Content = {}
TEXT: Content = {"text/plain": str}


@dataclass(frozen=True, slots=True)
class Described:
    """One operation.

    Args:
        answers: Its successes: what is in them by status.
        query: What can be asked for.
        body: The type of what it takes.
        refuses: Its own statuses of errors; those of every request come on top.
        needs_body: Whether a request without a body is wrong.
    """

    answers: Mapping[int, Content]
    query: tuple[Key, ...]
    body: Any
    refuses: frozenset[int]
    needs_body: bool


Handler = TypeVar("Handler", bound=Callable[..., Any])
_ATTRIBUTE = "described"


def described(
    answers: Mapping[int, Any],
    *,
    query: tuple[Key, ...] = (),
    body: Any = NOTHING,
    refuses: Iterable[int] = (),
    needs_body: bool = True,
) -> Callable[[Handler], Handler]:
    """Say it of a handler; what is wrapped around one with `functools.wraps` says the same.

    Args:
        answers: By status, the type of the JSON in it, or `Content`.
        query: As `Described`.
        body: As `Described`; None is JSON's null.
        refuses: As `Described`.
        needs_body: As `Described`.
    """
    contents = {status: said if isinstance(said, Mapping) else {JSON: said} for status, said in answers.items()}

    def say(handler: Handler) -> Handler:
        setattr(handler, _ATTRIBUTE, Described(contents, query, body, frozenset(refuses), needs_body))
        return handler

    return say


def description_of(handler: Any) -> Described | None:
    """What a handler says; None if nothing."""
    return getattr(handler, _ATTRIBUTE, None)
