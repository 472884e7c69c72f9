"""The topics through which a fleet's members exchange shares and policies: clients may not use them.

A broker without authorization takes messages from any client. One message to `NAME-policies` removes every limit of the
fleet, and one to `NAME-grants` gives a member the whole of each. Members reach their brokers directly, not through
Sluice; so Sluice refuses these topics to all its clients.

All topics of `fleet.namespace` are refused, not only those of this fleet: other fleets may have theirs there, and a
namespace has topics of its own by which policies of its topics are set (`__change_events`). Brokers compare names
character by character: percent signs and upper case make other names.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final
from urllib.parse import unquote

from protocol.pulsar_pb2 import NotAllowedError
from protocol.topic_name import TopicName, parse_topic
from proxy.config.model import Config
from proxy.refusals import RefusedError

WHY: Final = (
    "belongs to a fleet of Sluices: clients may not use it through Sluice, and its members reach brokers directly ("
    "name these in `broker`)"
)


class FleetTopics:
    """The namespace and the topic that clients may not use.

    Args:
        config: Its `fleet` and `policies.topic`.

    Attributes:
        is_any: Whether there are such topics.
    """

    def __init__(self, config: Config) -> None:
        fleet = config.fleet
        namespaces = [] if fleet is None else [fleet.namespace]
        self._policies: tuple[str, ...] = ()
        self._namespaces = frozenset(namespaces)
        self._administered = self._namespaces
        if config.policy_topic is not None:
            topic = parse_topic(config.policy_topic)
            self._policies = topic.full, topic.in_other_domain.full
            self._administered |= {topic.namespace_name}
        self._in_commands = tuple(name.encode() for name in (*(f"{each}/" for each in namespaces), *self._policies[:1]))
        self.is_any = bool(self._namespaces or self._policies)

    def check(self, topic: TopicName) -> None:
        """Check a topic that a client names.

        Raises:
            RefusedError: If it is of a fleet.
        """
        if self.is_any and (topic.namespace_name in self._namespaces or topic.partitioned in self._policies):
            raise RefusedError(NotAllowedError, f"{topic.full} {WHY}")

    def check_name(self, name: str | bytes) -> None:
        """Check the name of a topic or of a namespace, whose form may be wrong.

        Raises:
            RefusedError: If it is of a fleet.
        """
        if not self.is_any:
            return
        text = name if isinstance(name, str) else name.decode(errors="replace")
        if text in self._namespaces:
            raise RefusedError(NotAllowedError, f"the namespace {text} {WHY}")
        try:
            self.check(parse_topic(text))
        except ValueError:
            if self.are_in(text.encode(errors="replace")):
                raise RefusedError(NotAllowedError, f"this topic {WHY}") from None

    def are_in(self, command: bytes) -> bool:
        """Return whether an unparsed command names such a topic: commands have names as plain bytes."""
        return any(name in command for name in self._in_commands)

    def are_at(self, path: str) -> bool:
        """Return whether a path of the admin REST names a namespace with such a topic, however it is encoded.

        Who administers a namespace can delete its topics and have their messages expire.
        """
        return any(f"{tenant}/{rest}" in self._administered for tenant, rest in pairwise(_parts(path)))


def _parts(path: str) -> Iterable[str]:
    while (decoded := unquote(path)) != path:
        path = decoded
    return path.split("/")
