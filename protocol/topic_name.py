"""Parse topic names: `persistent://tenant/namespace/topic-partition-3` and their short forms."""

import re
from dataclasses import dataclass, replace
from sys import intern

from protocol.frames import MOST_NAME_BYTES

_PARTITION = "-partition-"
_DOMAINS = ("persistent", "non-persistent")
_MOST_PARTITION = 2**31 - 1
_MOST_SHOWN = 40
"""Characters of a too long name that its error shows."""
_ENTITY = re.compile(r"[-=:.\w]+", re.ASCII)
_JOINED = re.compile("@(?:non-)?persistent://")
"""Joins the name of a subscription or producer to its topic: the topic begins at the last match."""
_EVENTS = (
    "__change_events",
    "__transaction_buffer_snapshot",
    "__transaction_buffer_snapshot_indexes",
    "__transaction_buffer_snapshot_segments",
)
_PENDING_ACK = "__transaction_pending_ack"
_SYSTEM_TENANT = "pulsar"
_SYSTEM_NAMESPACE = "system"
_HEARTBEATS = re.compile(r"[^:]+:[0-9]+")
"""The namespace of a broker's heartbeats, in the tenant `pulsar`: the broker's host and port."""


def _partition_of(local: str) -> int:
    """Return the partition index of a local name, read as Java reads an int; -1 if it has no partition suffix.

    Java takes the decimal digits of any script in Unicode's first plane. A sign is not allowed here.
    """
    _, suffix, digits = local.rpartition(_PARTITION)
    if not suffix or len(digits) > len(str(_MOST_PARTITION)) or not digits.isdecimal() or max(digits) > "\uffff":
        return -1
    index = int(digits)
    return index if len(str(index)) == len(digits) and index <= _MOST_PARTITION else -1


def _without_partition(local: str) -> str:
    return local.rpartition(_PARTITION)[0] if _partition_of(local) >= 0 else local


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic's full name in its parts.

    `local` is the part after the namespace and may hold slashes and a partition suffix.

    Source: org.apache.pulsar.common.naming.TopicName
    """

    domain: str
    tenant: str
    namespace: str
    local: str

    @property
    def full(self) -> str:
        """The full name: `domain://tenant/namespace/local`."""
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local}"

    @property
    def in_other_domain(self) -> "TopicName":
        """The non-persistent topic of a persistent one's name, and the other way round; Pulsar has one schema for both.

        Source: org.apache.pulsar.common.naming.TopicName, getSchemaName
        """
        return replace(self, domain="non-persistent" if self.domain == "persistent" else "persistent")

    @property
    def namespace_name(self) -> str:
        """The namespace's name as pulsar-admin writes it: `tenant/namespace`."""
        return f"{self.tenant}/{self.namespace}"

    @property
    def partition(self) -> int:
        """The partition index; -1 if the topic is no partition: `t-partition-01` is a topic of its own."""
        return _partition_of(self.local)

    @property
    def partitioned(self) -> str:
        """The full name without the partition suffix, if there is one."""
        return f"{self.domain}://{self.tenant}/{self.namespace}/{_without_partition(self.local)}"

    @property
    def is_system(self) -> bool:
        """True if the topic is one of Pulsar's own persistent topics, which Pulsar exempts from its limits.

        These are all topics of `pulsar/system` and of the brokers' heartbeats (`pulsar/HOST:PORT`); and in every
        namespace the events of policies and transactions, by their whole name, and the pending acknowledgements, by the
        end of their name. The broker strips one partition suffix, and for the events a second one. A topic is not
        exempt here if some version of Pulsar subjects it to a limit of a namespace, resource group or broker:

        - A topic that is not persistent: it stays under the limits of brokers and resource groups.
        - A name of the old form `tenant/cluster/namespace/topic`, heartbeats and `sla-monitor` among them.

        Pulsar 2.11 does not know `…_snapshot_indexes` and `…_snapshot_segments`, and uses neither name.

        Source: BrokerService.isSystemTopic, SystemTopicNames, NamespaceService.isSystemServiceNamespace (4.0.8);
        exemption: apache/pulsar#23589
        """
        if self.domain != "persistent" or "/" in self.local:
            return False
        if self.tenant == _SYSTEM_TENANT and (
            self.namespace == _SYSTEM_NAMESPACE or _HEARTBEATS.fullmatch(self.namespace)
        ):
            return True
        local = _without_partition(self.local)
        return local.endswith(_PENDING_ACK) or _without_partition(local) in _EVENTS


def is_entity(name: str) -> bool:
    """Return whether `name` is a valid tenant, or namespace without tenant: ASCII letters, digits and `_-=:.`.

    Source: org.apache.pulsar.common.naming.NamedEntity
    """
    return _ENTITY.fullmatch(name) is not None


def parse_topic(name: str) -> TopicName:
    """Parse a topic name in any of the forms that clients send.

    Short forms are `topic` (in public/default) and `tenant/namespace/topic`. As at the broker, tenant and namespace are
    letters, digits and `_-=:.`, while the rest may hold any character, also NUL and other control characters (measured:
    4.0.8 serves such topics). Two rules are Sluice's own. The whole name is bounded; 4.0.8 also takes names of 60,000
    bytes. No local name contains `@persistent://`: limits of subscriptions and producers have names of that form.

    Raises:
        ValueError: If the name has another form, or is longer than `MOST_NAME_BYTES`.
    """
    if not isinstance(name, str):  # protobuf returns a string field that is not UTF-8 as bytes
        problem = f"{name[:_MOST_SHOWN]!r} is not a topic name: it is not UTF-8"
        raise ValueError(problem)  # noqa: TRY004  a peer sent these bytes; no caller misused the function
    if len(name) > MOST_NAME_BYTES:
        raise _too_long(name)
    domain, separator, rest = name.partition("://")
    if not separator:
        domain, rest = "persistent", name
        if "/" not in rest:
            rest = f"public/default/{rest}"
    tenant, _, rest = rest.partition("/")
    namespace, _, local = rest.partition("/")
    if domain not in _DOMAINS or not tenant or not namespace or not _without_partition(local):
        raise ValueError(f"{name!r} is not a topic name (domain://tenant/namespace/topic)")
    _check_parts(name, tenant, namespace, local)
    topic = TopicName(
        domain, intern(tenant), intern(namespace), local
    )  # thousands of topics share a tenant and a namespace
    if _size(topic.full) > MOST_NAME_BYTES:
        raise _too_long(name)
    return topic


def _check_parts(name: str, tenant: str, namespace: str, local: str) -> None:
    if _JOINED.search(local):
        raise ValueError(f"{name!r} is not a topic name here: no local name has @persistent:// in it")
    if not is_entity(tenant) or not is_entity(namespace):
        raise ValueError(f"{name!r} is not a topic name: tenant and namespace have letters, digits and _-=:. only")


def _size(name: str) -> int:
    """Return the number of UTF-8 bytes of a name.

    Raises:
        ValueError: If the name cannot be encoded.
    """
    if name.isascii():
        return len(name)
    try:
        return len(name.encode())
    except UnicodeEncodeError:  # half of a surrogate pair, say from an escape in JSON
        raise ValueError(f"{name!r} is not a topic name: it is not UTF-8") from None


def _too_long(name: str) -> ValueError:
    return ValueError(f"{name[:_MOST_SHOWN]!r}… is not a topic name: it has more than {MOST_NAME_BYTES} bytes")
