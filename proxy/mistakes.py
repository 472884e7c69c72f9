"""Bounds of what mistakes in a configuration or a request cost: any number of them may be written.

pydantic makes an object for each mistake, in one turn of the loop. So a section with far too many keys is one mistake,
and of the names of a section, or the entries of a list, the rest is passed over once some have mistakes.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticOmit

from proxy.bulk import PIECE

T = TypeVar("T")

MOST_PROBLEMS = 100
"""Mistakes after which names and entries are passed over."""
MOST_UNKNOWN = 50
"""Unknown keys of one section that are looked at one by one."""
CONTRADICTION: Final = "contradiction"
"""The type of mistakes that are each between two values."""
_MOST_NAMED = 12

Place = tuple[str, ...]
"""The keys that lead to a value."""


class Contradiction(NamedTuple):
    """A mistake between values.

    Attributes:
        place: The value that is reported, within its section.
        text: The mistake, and the remedy.
        beside: Values that contradict it, or each other, as much as it contradicts them.
        needed: Values that it refers to.
        is_sum: Whether the values of `beside` are too many.
    """

    place: Place
    text: str
    beside: tuple[Place, ...] = ()
    needed: tuple[Place, ...] = ()
    is_sum: bool = False


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake in a configuration, and the content that may be at fault.

    Args:
        name: Its key and its text, without lines.
        files: Files that are at fault, whatever their values are compared with.
        places: Values that are at fault: the first group of which any value has changed.
        is_of_one: Whether the file with the most of these values is at fault alone; else each one with any.
    """

    name: str
    files: frozenset[str] = frozenset()
    places: tuple[tuple[Place, ...], ...] = ()
    is_of_one: bool = False


_TOKEN = re.compile(r"\s*(?:bearer |token:|eyJ[\w-]+\.)", re.IGNORECASE)
"""The beginning of a token as clients write it, or of a JWT."""


class ConfigSection(BaseModel):
    """A section of the configuration: it has the keys of its fields, and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_unknown_keys(cls, written: Any) -> Any:
        most = len(cls.model_fields) + MOST_UNKNOWN
        if isinstance(written, dict) and len(written) > most:
            known = ", ".join(islice(cls.model_fields, _MOST_NAMED))
            raise ValueError(f"this section has {len(written)} keys, of {len(cls.model_fields)} known ones: {known}")
        return written

    @field_validator("token", "tokens", "token_file", mode="before", check_fields=False)
    @classmethod
    def _is_no_token(cls, written: Any) -> Any:
        if isinstance(written, str) and _TOKEN.match(written):  # else an error about the file would show it
            raise ValueError("this is a token itself; write it into a file for Sluice's user alone, and name the file")
        return written


def without_contradictions(contradictions: Iterable[Contradiction], read: Callable[[], T]) -> T:
    """Return what `read` returns, unless it has mistakes or values contradict each other: all are raised at once.

    Args:
        contradictions: Contradictions.
        read: Reads the section.

    Raises:
        ValidationError: With the mistakes of `read`, and then the contradictions.
    """
    between = list(islice(contradictions, MOST_PROBLEMS))
    mistakes: list[InitErrorDetails] = []
    try:
        section = read()
    except ValidationError as error:
        mistakes = [
            InitErrorDetails(
                type=PydanticCustomError(each["type"], "{text}", {"text": each["msg"]}),
                loc=each["loc"],
                input=each["input"],
            )
            for each in error.errors(include_url=False, include_context=False)
        ]
    else:
        if not between:
            return section
    mistakes += [
        InitErrorDetails(
            type=PydanticCustomError(CONTRADICTION, "{text}", {"text": each.text, CONTRADICTION: each}),
            loc=each.place,
            input=each.place[-1],
        )
        for each in between
    ]
    raise ValidationError.from_exception_data("", mistakes)


class ReadSoFar:
    """The context of a validation: the values that it has read so far, and the number of mistakes.

    Attributes:
        mistakes: The number of mistakes that names and entries have.
        values: The names, values by name and entries without a mistake. If others have some, pydantic frees all that it
            has read in one call; these outlive that call, and `let_go` frees them in pieces.
    """

    __slots__ = ("mistakes", "values")

    def __init__(self) -> None:
        self.mistakes = 0
        self.values: list[Any] = []

    def let_go(self) -> None:
        """Forget the values, in pieces."""
        while self.values:
            del self.values[-PIECE:]


def _bounded(value: Any, read: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    so_far = info.context
    if not isinstance(so_far, ReadSoFar):
        return read(value)
    if so_far.mistakes >= MOST_PROBLEMS:
        raise PydanticOmit
    try:
        has_read = read(value)
    except ValidationError as error:
        so_far.mistakes += error.error_count()
        raise
    so_far.values.append(has_read)
    return has_read


BOUNDED = WrapValidator(_bounded)
"""Of a name, a value by name, or an entry of a list: passes over the rest after `MOST_PROBLEMS` mistakes."""
