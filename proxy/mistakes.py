"""Bounds of what mistakes in a configuration or a request cost: any number of them may be written.

pydantic makes an object for each mistake, in one turn of the loop. So a section with far too many keys is one mistake,
and of the names of a section, or the entries of a list, the rest is passed over once some have mistakes.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

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

MOST_PROBLEMS = 100
"""Mistakes after which names and entries are passed over."""
MOST_UNKNOWN = 50
"""Unknown keys of one section that are looked at one by one."""
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


def twice(text: str, name: str) -> ValidationError:
    """Return the mistake of a name that stands in a section twice, at its own place."""
    return mistakes_at({(name,): text})


def mistakes_at(texts: Mapping[tuple[str, ...], str]) -> ValidationError:
    """Return mistakes of a section, each by its place in the section."""
    kind = [(place, PydanticCustomError("twice", "{text}", {"text": text})) for place, text in texts.items()]
    problems = [InitErrorDetails(type=mistake, loc=place, input=place[-1]) for place, mistake in kind]
    return ValidationError.from_exception_data("", problems)


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
