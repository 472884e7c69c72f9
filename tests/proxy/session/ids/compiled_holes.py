"""Holes in what is compiled, which nothing can patch there: this runs as a process of its own, which interprets it.

python -m tests.interpreted tests.proxy.session.ids.compiled_holes NAME
"""

import logging
import sys
from collections.abc import Callable
from typing import Any

import structlog

from protocol import walk
from protocol.frames import SEND
from tests.proxy.session.ids.adversary import FREE, HELD, Said
from tests.proxy.session.ids.driver import run, steps_of
from tests.proxy.session.ids.duel import Step

MOST_SEEDS = 600
"""As many as the product itself has to pass."""

Numbers = tuple[int, int, int]


def plant(name: str, instead: Any) -> None:
    setattr(walk, name, instead)


def bodies_are_cut_at_their_length() -> None:
    """A client's command is read as any other: what looks like a field behind its body is stepped over."""

    def read(data: bytes, at: int, end: int) -> Numbers:
        kind, owner, third = 0, -1, 0
        while at < end:
            tag, at = walk.varint(data, at, end)
            if tag == walk._TYPE:
                kind, at = walk.varint(data, at, end)
                continue
            behind = walk.skip(data, at, end, tag)
            if tag >> 3 == kind == SEND:
                _size, at = walk.varint(data, at, end)
                owner, third = walk._ids(data, at, behind, owner, third, True)
            at = behind
        return kind, owner, third

    plant("_read_of_client", read)


def numbers_behind_a_message_count() -> None:
    """Those of a SEND are read behind the message that it holds, where its length says that it ends."""
    sound = walk._ids

    def ids(data: bytes, at: int, end: int, owner: int, third: int, _is_strict: bool) -> Any:  # noqa: FBT001
        return sound(data, at, end, owner, third, False)

    plant("_ids", ids)


HOLES: dict[str, tuple[Callable[[], None], set[str]]] = {
    "bodies_are_cut_at_their_length": (bodies_are_cut_at_their_length, {"identity", "charge", "request id"}),
    "numbers_behind_a_message_count": (numbers_behind_a_message_count, {"charge"}),
}
"""Each with the rules that break by it."""

_OPEN = [Said("PRODUCER", ((1, topic), (2, number), (3, number))) for number, topic in ((1, FREE), (2, HELD))]
RARE: dict[str, list[Step]] = {
    "numbers_behind_a_message_count": [
        *(Step("client_says", (tuple(_OPEN), 1.0)), Step("all_settles")),
        *(Step("client_says", ((Said("SEND", ((1, 2), (2, 0)), "hidden fields", ((1, 1), (2, 0))),), 1.0)),),
        Step("all_settles"),
    ],
}
"""The steps that find those that seeds hardly ever have."""


def main(name: str) -> None:
    """Plant it; exit with a sentence if none of its rules breaks."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    hole, rules = HOLES[name]
    hole()
    for steps in [RARE[name]] if name in RARE else map(steps_of, range(MOST_SEEDS)):
        broken = run(steps)
        if broken is not None and broken.rule in rules:
            return
    sys.exit("nothing found")


if __name__ == "__main__":
    main(*sys.argv[1:])
