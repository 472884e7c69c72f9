"""A client that says anything: ids and request ids that collide, in every form that the wire allows."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.proxy.session.ids import commands as c
from tests.proxy.session.ids.forms import FORMS
from tests.proxy.session.ids.lightproto import FieldList, frame, message

FREE, HELD, REFUSED, LOOKALIKE = (
    "persistent://free/space/topic",
    "persistent://acme/shop/held",
    "persistent://acme/shop/refused",
    "persistent://acme/shop/__change_events-partition-x",
)


@dataclass(frozen=True)
class Words:
    """What the client makes its commands of; ids and request ids are few, so that they collide."""

    topics: tuple[str, ...] = (
        *(FREE, HELD, REFUSED, LOOKALIKE, "acme/shop/held"),
        *("persistent://free/space/\udcff", "no topic//", "public"),
    )
    namespace: str = "acme/shop"
    names: tuple[str, ...] = (*[""] * 8, "loud", "loud", "quiet", "quiet", "\udcff\udced\udca0\udc80")
    subscriptions: tuple[str, ...] = (*["one", "two"] * 5, "\udcff\udced\udca0\udc80")
    numbers: tuple[int, ...] = (1, 1, 1, 2, 2, 3)
    requests: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 2**64 - 1, 2**64 - 2, 2**64 - 3, 2**63)
    odd: float = 0.03
    """How much of it has an odd form."""
    likely: tuple[str, ...] = ()
    """Names of commands, each as often as it is likely."""
    exclusive: float = 0.1
    """How many producers want to be alone, and wait for it."""


WORDS = Words()

KINDS = {
    "PRODUCER": c.PRODUCER,
    "SUBSCRIBE": c.SUBSCRIBE,
    "CLOSE_PRODUCER": c.CLOSE_PRODUCER,
    "CLOSE_CONSUMER": c.CLOSE_CONSUMER,
    "SEND": c.SEND,
    "FLOW": c.FLOW,
    "UNSUBSCRIBE": c.UNSUBSCRIBE,
    "SEEK": c.SEEK,
    "REDELIVER": c.REDELIVER,
    "ACK": c.ACK,
    "GET_LAST_MESSAGE_ID": c.GET_LAST_MESSAGE_ID,
    "CONSUMER_STATS": c.CONSUMER_STATS,
    "LOOKUP": c.LOOKUP,
    "PARTITIONED_METADATA": c.PARTITIONED_METADATA,
    "GET_TOPICS": c.GET_TOPICS,
    "GET_SCHEMA": c.GET_SCHEMA,
    "NEW_TXN": c.NEW_TXN,
    "WATCH_CLOSE": c.WATCH_CLOSE,
    "FUTURE_1": c.FUTURE[0],
    "FUTURE_2": c.FUTURE[1],
    "PING": c.PING,
}
_LIKELY = (
    *["PRODUCER"] * 14,
    *["SUBSCRIBE"] * 8,
    *["CLOSE_PRODUCER"] * 8,
    *["CLOSE_CONSUMER"] * 5,
    *["SEND"] * 20,
    *["FLOW"] * 12,
    *KINDS,
)


_TWISTS = [[name] for name in FORMS if not name.startswith("hidden in")]
_TWISTS.append([name for name in FORMS if name.startswith("hidden in")])
"""Each as likely; those that do the same with different commands as one."""
_WITH_DECOY = {"scalars twice", "body twice", "hidden fields"}
_METADATA = b"\x00\x00\x00\x07" + message([(1, "p"), (2, 1), (3, 1)])
"""Of a message, behind its size: what a broker wants of it."""


@dataclass(frozen=True)
class Said:
    """One command of the client's.

    Args:
        name: Of its type.
        fields: As they are meant.
        twist: How its form differs from the usual; empty for the usual.
        decoy: Another command's fields of the same type, for forms that say something twice.
        payload: Bytes of a SEND's payload.
    """

    name: str
    fields: tuple[tuple[int, Any], ...]
    twist: str = ""
    decoy: tuple[tuple[int, Any], ...] = ()
    payload: int = 0

    def __str__(self) -> str:
        fields = " ".join(f"{number}={value!r}" for number, value in self.fields)
        twist = f" ({self.twist}; decoy {dict(self.decoy)})" if self.twist else ""
        return f"{self.name} {fields}{twist}"

    def encoded(self) -> bytes:
        """Its frame."""
        kind, fields = KINDS[self.name], [_on_wire(field) for field in self.fields]
        decoy = [_on_wire(field) for field in self.decoy]
        form = FORMS.get(self.twist)
        envelope = form(kind, fields, decoy) if form else message([(1, kind), (kind, fields)])
        return frame(envelope, _METADATA + bytes(self.payload) if self.name == "SEND" else b"")


def _on_wire(field: tuple[int, Any]) -> tuple[int, Any]:
    number, value = field
    return number, value.encode(errors="surrogateescape") if isinstance(value, str) else value


def some_words(random: Random) -> Words:
    """Those of one client: each client says some things often, and others never."""
    often = {name: random.choice((0, 1, 1, 4)) for name in KINDS}
    return replace(
        WORDS,
        topics=tuple(random.sample(WORDS.topics, random.randrange(2, len(WORDS.topics)))),
        numbers=random.choice(((1,), (1, 2), WORDS.numbers)),
        requests=random.choice((WORDS.requests, WORDS.requests[:8])),
        odd=random.choice((0, 0, 0.01, 0.2)),
        likely=tuple(name for name in _LIKELY for _ in range(often[name])) or _LIKELY,
    )


def said(random: Random, name: str = "", words: Words = WORDS) -> Said:
    """One command that comes to the client's mind."""
    name = name or random.choice(words.likely or _LIKELY)
    fields = fields_of(random, name, words)
    twist = random.choice(random.choice(_TWISTS)) if random.random() < words.odd else ""
    decoy = fields_of(random, name, words) if twist in _WITH_DECOY else ()
    return Said(name, fields, twist, decoy, random.choice((0, 10, 10, 100)) if name == "SEND" else 0)


def fields_of(random: Random, name: str, words: Words = WORDS) -> tuple[tuple[int, Any], ...]:
    """Fields of a command of this name."""
    number, request, topic = random.choice(words.numbers), random.choice(words.requests), random.choice(words.topics)
    some = [(place, random.choice(words.requests)) for place in random.sample(range(1, 5), random.randrange(1, 4))]
    known: dict[str, FieldList] = {
        "PRODUCER": [(1, topic), (2, number), (3, request)],
        "SUBSCRIBE": [(1, topic), (2, random.choice(words.subscriptions)), (3, 1), (4, number), (5, request)],
        "SEND": [(1, number), (2, random.randrange(100)), (3, random.choice((1, 1, 2, 5)))],
        "FLOW": [(1, number), (2, random.choice((1, 2, 5, 50, 0, 2**31)) if random.random() < 0.2 else 5)],
        "SEEK": [(1, number), (2, request), (4, 1)],
        "REDELIVER": [(1, number)],
        "ACK": [(1, number), (2, 0), (8, request)],
        "CONSUMER_STATS": [(1, request), (4, number)],
        "LOOKUP": [(1, topic), (2, request)],
        "PARTITIONED_METADATA": [(1, topic), (2, request)],
        "GET_TOPICS": [(1, request), (2, words.namespace)],
        "GET_SCHEMA": [(1, request), (2, words.topics[0])],
        "NEW_TXN": [(1, request)],
        "WATCH_CLOSE": [(1, request), (2, 1)],
        "FUTURE_1": some,
        "FUTURE_2": some,
        "PING": [],
    }
    fields = known.get(name, [(1, number), (2, request)])
    if name in {"PRODUCER", "SUBSCRIBE"} and (given := random.choice(words.names)):
        fields.append((4 if name == "PRODUCER" else 6, given))
    if name == "PRODUCER" and random.random() < words.exclusive:
        fields.append((10, 2))
    if name == "REDELIVER" and random.random() < 0.5:
        fields.append((3, 1))
    return tuple(fields)
