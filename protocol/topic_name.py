"""Topic names: `persistent://tenant/namespace/topic-partition-3` and their short forms."""

from dataclasses import dataclass
from sys import intern

_PARTITION = "-partition-"
_DOMAINS = ("persistent", "non-persistent")
_MOST_PARTITION = 2**31 - 1
_SYSTEM_TOPICS = (
    "__change_events",
    "__transaction_buffer_snapshot",
    "__transaction_buffer_snapshot_indexes",
    "__transaction_buffer_snapshot_segments",
    "__transaction_pending_ack",
)


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic's full name, taken apart.

    `local` is the part behind the namespace and may hold slashes and a partition suffix.

    Source: org.apache.pulsar.common.naming.TopicName
    """

    domain: str
    tenant: str
    namespace: str
    local: str

    @property
    def full(self) -> str:
        """`domain://tenant/namespace/local`."""
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local}"

    @property
    def namespace_name(self) -> str:
        """`tenant/namespace`, as pulsar-admin writes it."""
        return f"{self.tenant}/{self.namespace}"

    @property
    def partition(self) -> int:
        """The partition's index, -1 where the topic is none: `t-partition-01` is a topic of its own."""
        _, found, digits = self.local.rpartition(_PARTITION)
        if not found or len(digits) > len(str(_MOST_PARTITION)) or not (digits.isascii() and digits.isdigit()):
            return -1
        index = int(digits)
        return index if str(index) == digits and index <= _MOST_PARTITION else -1

    @property
    def partitioned(self) -> str:
        """The full name without a partition suffix."""
        if self.partition < 0:
            return self.full
        return self.full.rpartition(_PARTITION)[0]

    @property
    def is_system(self) -> bool:
        """Whether the topic is Pulsar's own (policies, transactions, heartbeats), which Pulsar itself never limits.

        Source: org.apache.pulsar.common.naming.SystemTopicNames; exemption: apache/pulsar#23589
        """
        local = self.local.partition(_PARTITION)[0]
        own_namespace = self.tenant == "pulsar" and (self.namespace == "system" or local == "healthcheck")
        return own_namespace or local in _SYSTEM_TOPICS


def parse_topic(name: str) -> TopicName:
    """Read a topic's name in any of the forms that clients send.

    Short forms are `topic` (in public/default) and `tenant/namespace/topic`.

    Raises:
        ValueError: If the name fits none of these forms.
    """
    if not isinstance(name, str):  # protobuf hands out a string field that is not UTF-8 as bytes
        raise ValueError(f"{name!r} is not a topic name: it is not UTF-8")  # noqa: TRY004  what a peer sent, not a misuse
    domain, separator, rest = name.partition("://")
    if not separator:
        domain, rest = "persistent", name
        if "/" not in rest:
            rest = f"public/default/{rest}"
    tenant, _, rest = rest.partition("/")
    namespace, _, local = rest.partition("/")
    if domain not in _DOMAINS or not tenant or not namespace or not local:
        raise ValueError(f"{name!r} is not a topic name (domain://tenant/namespace/topic)")
    return TopicName(domain, intern(tenant), intern(namespace), local)  # thousands of topics have the same
