"""The broker as a whole: its topics, and the subscriptions that have something to do."""

from collections import Counter
from itertools import count
from typing import Any

from loadgen.standin.entry_log import EntryLog
from loadgen.standin.options import BrokerOptions
from loadgen.standin.refusal import Refused
from loadgen.standin.schemas import SchemaRegistry
from loadgen.standin.subscription import Subscription
from loadgen.standin.topic import Topic
from protocol.pulsar_pb2 import ServerError
from protocol.topic_name import TopicName, parse_topic

MOST_TOPICS = 100_000


class Broker:
    """All that connections share.

    Whoever changes something calls `dispatch` when done with the bytes at hand, once for all changes.
    """

    def __init__(self, options: BrokerOptions) -> None:
        self.options = options
        self.schemas = SchemaRegistry()
        self.ignored_commands: Counter[str] = Counter()
        self._topics: dict[str, Topic] = {}
        self._ledgers = count(options.first_ledger)
        self._producer_numbers = count()
        self._awake: dict[Subscription, None] = {}

    def topic(self, name: str) -> Topic:
        """The topic of that name, made if need be.

        Raises:
            Refused: If the name is no topic's, or there are MOST_TOPICS already.
        """
        known = self._topics.get(name)
        return known if known is not None else self._topic_of(parse_name(name))

    def _topic_of(self, name: TopicName) -> Topic:
        topic = self._topics.get(name.full)
        if topic is None:
            if len(self._topics) >= MOST_TOPICS:
                raise Refused(ServerError.NotAllowedError, f"the broker has {MOST_TOPICS} topics already")
            log = EntryLog(next(self._ledgers), self.options.topic_bytes, self.options.retention_bytes)
            topic = self._topics[name.full] = Topic(name, log, self._wake)
        return topic

    def partitions(self, name: str) -> int:
        """How many partitions the topic was configured with, 0 for one that is not partitioned.

        Raises:
            Refused: If the name is no topic's.
        """
        return self.options.partitions.get(parse_name(name).full, 0)

    def topics_of(self, namespace: str) -> list[TopicName]:
        """The topics of `tenant/namespace` that exist, partitions one by one."""
        configured = [
            parse_topic(f"{name}-partition-{index}")
            for name, partitions in self.options.partitions.items()
            for index in range(partitions)
        ]
        names = {name.full: name for name in configured} | {key: topic.name for key, topic in self._topics.items()}
        return [name for name in names.values() if name.namespace_name == namespace]

    def producer_name(self) -> str:
        """A name for a producer that brought none."""
        return f"standin-{self.options.first_ledger}-{next(self._producer_numbers)}"

    def dispatch(self) -> None:
        """Let each subscription that was woken deliver what it can."""
        while self._awake:
            subscription, _ = self._awake.popitem()
            subscription.dispatch()

    def counts(self) -> dict[str, Any]:
        """Totals by topic, and the commands that were not understood."""
        topics = {
            name: {field: getattr(topic.counts, field) for field in topic.counts.__slots__}
            for name, topic in sorted(self._topics.items())
        }
        return {"topics": topics, "ignored_commands": dict(self.ignored_commands)}

    def _wake(self, subscription: Subscription) -> None:
        self._awake[subscription] = None


def parse_name(name: str) -> TopicName:
    """A topic's name as clients send it.

    Raises:
        Refused: InvalidTopicName if it is none.
    """
    try:
        return parse_topic(name)
    except ValueError as error:
        raise Refused(ServerError.InvalidTopicName, str(error)) from None
