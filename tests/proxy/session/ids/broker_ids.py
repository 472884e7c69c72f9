"""The producers and consumers of a broker's connection, as the broker has them, and what it will do with them."""

from dataclasses import dataclass

Place = tuple[str, str, str]
"""Topic, subscription (empty for producers), and the name of a producer or consumer."""


@dataclass(eq=False)
class Held:
    """A producer or consumer id, as the connection holds it.

    Attributes:
        state: `creating`, `created` or `failed`.
        is_unmade: The broker has closed it while it was created: it is gone once it is there.
    """

    kind: int
    number: int
    place: Place
    request: int
    state: str = "creating"
    is_unmade: bool = False
    is_closing: bool = False
    waits: bool = False
    permits: int = 0


@dataclass(eq=False)
class Task:
    """What the broker does later: `authorize`, `create`, `answer`, `close`, `unsubscribe`, `seek` or `stale`."""

    what: str
    held: Held
    request: int


def full_name(topic: str) -> str:
    """A topic's full name; brokers take short ones, too."""
    if "://" in topic:
        return topic
    return f"persistent://{topic}" if "/" in topic else f"persistent://public/default/{topic}"
