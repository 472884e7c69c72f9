"""Bounds of what mistakes in a configuration or a request cost: any number of them may be written.

pydantic makes an object for each mistake, in one turn of the loop. So a section with far too many keys is one mistake,
and of the names of a section, or the entries of a list, the rest is passed over once some have mistakes.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticOmit

T = TypeVar("T")

MOST_PROBLEMS = 100
"""Mistakes after which names and entries are passed over."""
MOST_UNKNOWN = 50
"""Unknown keys of one section that are looked at one by one."""
CONTRADICTION: Final = "contradiction"
"""The type of mistakes that are each between two values."""
_MOST_NAMED = 12


class ConfigSection(BaseModel):
    """A section of the configuration: it has the keys of its fields, and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_unknown_keys(cls, written: Any) -> Any:
        most = len(cls.model_fields) + MOST_UNKNOWN
        if isinstance(written, dict) and len(written) > most:
            known = ", ".join(islice(cls.model_fields, _MOST_NAMED))
            raise ValueError(f"{len(written)} keys are here, and {len(cls.model_fields)} are known here: {known}")
        return written


def without_contradictions(found: Iterable[tuple[tuple[str, ...], str]], read: Callable[[], T]) -> T:
    """Return what `read` returns, unless it has mistakes or values contradict each other: all are raised at once.

    Args:
        found: Contradictions: the place of each in the section, and its text.
        read: Reads the section.

    Raises:
        ValidationError: With the mistakes of `read`, and then the contradictions.
    """
    between = [(place, CONTRADICTION, text, place[-1]) for place, text in islice(found, MOST_PROBLEMS)]
    mistakes: list[tuple[tuple[int | str, ...], str, str, Any]] = []
    try:
        section = read()
    except ValidationError as error:
        own = error.errors(include_url=False, include_context=False)
        mistakes = [(each["loc"], each["type"], each["msg"], each["input"]) for each in own]
    else:
        if not between:
            return section
    raise ValidationError.from_exception_data(
        "",
        [
            InitErrorDetails(type=PydanticCustomError(kind, "{text}", {"text": text}), loc=place, input=value)
            for place, kind, text, value in (*mistakes, *between)
        ],
    )


class ProblemCount:
    """The number of mistakes that names and entries have so far; the context of a validation."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found = 0


def _bounded(value: Any, read: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    count = info.context
    if not isinstance(count, ProblemCount):
        return read(value)
    if count.found >= MOST_PROBLEMS:
        raise PydanticOmit
    try:
        return read(value)
    except ValidationError as error:
        count.found += error.error_count()
        raise


BOUNDED = WrapValidator(_bounded)
"""Of a name, a value by name, or an entry of a list: passes over the rest after `MOST_PROBLEMS` mistakes."""
