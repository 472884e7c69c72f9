"""The scenario file: its keys, and one clear line for each thing that it gets wrong.

tenants:
  bank:
    topics:
      payments/orders:            # persistent://bank/payments/orders
        producers: 2
        message_bytes: 512
        connection: gateway       # all topics of this name share one client connection
        pattern: {kind: steady, rate: 100}
limits:                           # what the receiving end is held to
  - name: orders
    topics: [persistent://bank/payments/orders]
    messages: 300
"""

import math
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from loadgen.load.payload import HEADER_BYTES
from protocol.topic_name import parse_topic
from protocol.yaml_text import YamlTextError, read_yaml_text

PatternRate = Annotated[float, Field(gt=0, le=20_000)]
"""Messages per second."""
Seconds = Annotated[float, Field(gt=0, le=3_600)]
Name = Annotated[str, Field(min_length=1, max_length=200)]

_SECTION, _KINDS = "a section of keys belongs here", "write kind: steady, greedy or bursty"
_WORDS = {
    "missing": "this key must be given here",
    "extra_forbidden": "this key is not known here: remove it, or correct its spelling",
    "union_tag_not_found": _KINDS,
    "union_tag_invalid": _KINDS,
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
    "dict_type": _SECTION,
    "list_type": "a list belongs here",
    "string_type": "text belongs here",
    "float_parsing": "a number belongs here",
    "float_type": "a number belongs here",
    "int_parsing": "an integer belongs here",
    "int_type": "an integer belongs here",
    "too_short": "at least one entry belongs here",
    "string_too_short": "it must not be empty",
}
"""Plain words for pydantic's errors, as `sluice check` has them."""


class ScenarioError(Exception):
    """The scenario cannot be used; `lines` holds one line for each reason."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Steady(_Model):
    """A pattern with the same pace all the time."""

    kind: Literal["steady"]
    rate: PatternRate


class Greedy(_Model):
    """A pattern as fast as the clients' pending queues allow; `rate` caps the attempts so that the machine survives."""

    kind: Literal["greedy"]
    rate: PatternRate


class Bursty(_Model):
    """`rate` for `burst` seconds, then nothing for `pause` seconds, and again."""

    kind: Literal["bursty"]
    rate: PatternRate
    burst: Seconds
    pause: Seconds


def wanted_by(pattern: Steady | Greedy | Bursty, elapsed_s: float) -> int:
    """Messages that the pattern wants offered within the first `elapsed_s` seconds: open loop, whatever came back."""
    return math.floor(pattern.rate * _active_s(pattern, elapsed_s))


def _active_s(pattern: Steady | Greedy | Bursty, elapsed_s: float) -> float:
    if not isinstance(pattern, Bursty):
        return elapsed_s
    cycle = pattern.burst + pattern.pause
    whole = math.floor(elapsed_s / cycle)
    return whole * pattern.burst + min(pattern.burst, elapsed_s - whole * cycle)


Pattern = Annotated[Steady | Greedy | Bursty, Field(discriminator="kind")]


class TopicLoad(_Model):
    """The load of one topic; its pace is dealt out over its producers in turn."""

    pattern: Pattern
    producers: int = Field(default=1, ge=1, le=1_000)
    message_bytes: int = Field(default=256, ge=HEADER_BYTES, le=1_000_000)
    connection: Name | None = None
    """Topics that name the same connection share one client; without a name the topic has a client of its own."""
    pending: int = Field(default=1_000, ge=1, le=50_000)
    """Messages on their way that one producer's queue holds; what finds it full is not offered, and counted."""


class ScenarioTenant(_Model):
    """The topics of one tenant, by `namespace/topic`."""

    topics: dict[Name, TopicLoad] = Field(min_length=1)


class PromisedLimit(_Model):
    """A limit that the receiving end is held to: all its topics together."""

    name: Name
    topics: list[Name] = Field(min_length=1)
    messages: PatternRate
    burst: float | None = Field(default=None, ge=1)
    """Capacity of the bucket, messages; default a tenth of a second's worth, at least one message."""

    @property
    def burst_messages(self) -> float:
        """The burst in force."""
        return max(1.0, self.messages / 10) if self.burst is None else self.burst


class Scenario(_Model):
    """Tenants, their topics' load, and the limits that the arrivals are checked against."""

    tenants: dict[Name, ScenarioTenant] = Field(min_length=1)
    limits: list[PromisedLimit] = []

    def topics(self) -> Iterator[tuple[str, TopicLoad]]:
        """Each topic's full name with its load."""
        for tenant, entry in self.tenants.items():
            for local, load in entry.topics.items():
                yield f"persistent://{tenant}/{local}", load

    @model_validator(mode="after")
    def _names_must_fit(self) -> "Scenario":
        for name, _ in self.topics():
            parse_topic(name)
        known = {name for name, _ in self.topics()}
        for limit in self.limits:
            if unknown := sorted(set(limit.topics) - known):
                raise ValueError(f"limit {limit.name!r} names {unknown[0]!r}, which is no topic of a tenant above")
        return self


_MOST_BYTES = 1024 * 1024


def _content(path: Path) -> bytes:
    status = path.stat()  # before it is opened: a FIFO would be waited for, and a device may have no end
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
        raise ScenarioError([f"{path}: is not a file of at most {_MOST_BYTES} bytes"])
    return path.read_bytes()


def load_scenario(path: Path) -> Scenario:
    """Read a scenario.

    Raises:
        ScenarioError: If the file cannot be read, is no YAML, or says something that a scenario may not.
    """
    try:
        content = read_yaml_text(_content(path))
    except OSError as error:
        raise ScenarioError([f"{path}: {error.strerror}: give the scenario's file with --scenario"]) from error
    except YamlTextError as error:
        raise ScenarioError([f"{path}: {error}"]) from error
    try:
        return Scenario.model_validate(content)
    except ValidationError as error:
        raise ScenarioError([_line(path, details) for details in error.errors()]) from error


def _line(path: Path, error: ErrorDetails) -> str:
    patterns = {name for kind in (Steady, Greedy, Bursty) for name in get_args(kind.model_fields["kind"].annotation)}
    is_of_pattern = "pattern" in error["loc"]  # pydantic names the kind as if it were a key
    keys = [str(part) for part in error["loc"] if not (is_of_pattern and part in patterns)]
    return f"{path}: {'.'.join(keys) or '(whole file)'}: {_value(error)}{_words(error)}"


def _words(error: ErrorDetails) -> str:
    if error["input"] is None:
        return "nothing is written here, where a value belongs"
    words = _WORDS.get(error["type"], error["msg"].removeprefix("Value error, "))
    return words.replace("Input should be", "it must be")


def _value(error: ErrorDetails) -> str:
    """Return the wrong value with a colon; nothing for a section, or for a key that is missing."""
    given = error["input"]
    if given is None or error["type"] == "missing" or isinstance(given, dict | BaseModel):
        return ""
    text = "a list" if isinstance(given, list) else repr(given)
    return f"{text if len(text) <= 60 else text[:59] + '…'}: "
