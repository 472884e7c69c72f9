"""Limits at all levels at once: each holds for exactly the streams that it should, together."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from limiter import registry
from limiter.levels import LEVEL_OF_SETTING, LEVELS, Client, Setting
from limiter.limiter import Limiter, Stream
from limiter.policies import Policies, Value
from limiter.registry import Registry
from limiter.token_bucket import Limit, rate
from protocol.topic_name import parse_topic
from tests.limiter.clockwork import MOST_STREAMS, WHOSE, Clockwork
from tests.limiter.long_run import long_run

TENANTS, SPACES, PARTITIONS = "tu", "no", ("", "-partition-0", "-partition-1")
SYSTEM = "__change_events"
BASES = ("x", "y", SYSTEM)
GROUPS = {"t/n": "gold", "u": "gold", "t/o": "iron"}
"""Resource groups: of a namespace, of a tenant for its namespaces without their own."""
NETWORK, NARROW = "10.0.0.0/8", "10.1.0.0/16"

VALUES = st.sampled_from(
    [
        Limit(rate(tokens, burst=burst), size, peak, mode=mode)
        for tokens, burst in ((20, 2), (200, None), (3000, None))
        for size in (None, rate(50_000))
        for peak in (None, rate(2 * tokens, burst=3))
        for mode in ("enforce", "enforce", "observe", "reject")
    ]
)
SETTINGS = (
    (Setting.PROXY, ""),
    (Setting.TENANT, "t"),
    (Setting.TENANT, "*"),
    (Setting.NAMESPACE, "t/n"),
    (Setting.NAMESPACE, "u/n"),
    (Setting.RESOURCE_GROUP, "gold"),
    (Setting.RESOURCE_GROUP, "iron"),
    (Setting.PARTITIONED_TOPIC, "persistent://t/n/x"),
    (Setting.PARTITIONED_TOPIC, "persistent://u/n/y"),
    (Setting.TOPIC, "persistent://t/n/x"),
    (Setting.TOPIC_OF_NAMESPACE, "t/n"),
    (Setting.TOPIC_OF_BROKER, ""),
    (Setting.PRODUCER, "meter"),
    (Setting.PRODUCER, "*"),
    (Setting.ROLE, "billing"),
    (Setting.ADDRESS, NETWORK),
    (Setting.ADDRESS, NARROW),
    (Setting.EXEMPT, ""),
)
assert {level.word for level in LEVELS} - {LEVEL_OF_SETTING[setting].word for setting, _ in SETTINGS} == {
    "subscription"
}


@dataclass(frozen=True, slots=True)
class Who:
    """Whose stream it is, in parts."""

    tenant: str
    space: str
    base: str
    partition: str
    producer: str
    role: str
    address: str

    @property
    def namespace(self) -> str:
        return f"{self.tenant}/{self.space}"

    @property
    def whole(self) -> str:
        return f"persistent://{self.namespace}/{self.base}"


WHO = st.sampled_from(
    [
        Who(tenant, space, base, partition, producer, role, address)
        for tenant in TENANTS
        for space in SPACES
        for base in BASES
        for partition in PARTITIONS
        for producer in ("", "meter", "other")
        for role, address in (("billing", "10.1.0.1"), ("", "10.2.0.1"), ("guest", "11.0.0.1"), ("billing", "10.1.0.2"))
    ]
)


class Levels(Clockwork):
    """Streams of many kinds within limits at every level, opened, named by the broker, closed and opened again.

    Proves beyond `Clockwork`: which limits a stream is under is worked out here, from the meaning of the levels, not
    asked of the code. So P2 in the ledger holds for each limit over exactly the streams that it should cover, together:
    partitions of a topic, producers of one name on one topic but not on two, clients of one role or address on any
    topic, the namespaces of one resource group; one topic of Pulsar's own, and nothing else. A sweep between any two
    steps forgets no limit in debt.
    """

    def __init__(self) -> None:
        super().__init__()
        self.policies = Policies()
        self.table: dict[tuple[Setting, str], Limit | None] = {}
        self.keeping = mock.patch.object(registry, "KEPT", 0)
        self.keeping.start()
        self.registry = Registry(self.policies, self.world.scheduler, self.world.observer)
        self.who: dict[Stream, Who] = {}
        self.policies.groups_of_namespaces.update({name: group for name, group in GROUPS.items() if "/" in name})
        self.policies.groups_of_tenants.update({name: group for name, group in GROUPS.items() if "/" not in name})

    def teardown(self) -> None:
        super().teardown()
        self.keeping.stop()

    @initialize(values=st.lists(st.none() | st.none() | VALUES, min_size=len(SETTINGS), max_size=len(SETTINGS)))
    def begin(self, values: list[Limit | None]) -> None:
        for setting, limit in zip(SETTINGS, values, strict=True):
            self.put(setting, limit)

    def put(self, setting: tuple[Setting, str], limit: Limit | None) -> None:
        self.table[setting] = limit
        self.policies.put("publish", *setting, None if limit is None else Value(limit, "file"))

    def limits_of(self, stream: Stream) -> Iterable[tuple[Hashable, Limit]]:
        """From the streams' own data; of what is played beside a stream: those that are only observed."""
        is_played = isinstance(stream.connection, Stream)
        owner = self.who[stream.connection if isinstance(stream.connection, Stream) else stream]
        return [(name, limit) for name, limit in self.cover(owner) if (limit.mode == "observe") == is_played]

    def cover(self, owner: Who) -> list[tuple[tuple[str, ...], Limit]]:
        """Every limit over a stream, by level and what it is of; outermost first."""
        if owner.base == SYSTEM:
            limit = self.of((Setting.EXEMPT, ""))
            return [] if limit is None else [(("exempt", owner.whole), limit)]
        limits = [
            (("proxy",), self.of((Setting.PROXY, ""))),
            (("tenant", owner.tenant), self.of((Setting.TENANT, owner.tenant), (Setting.TENANT, "*"))),
            (("namespace", owner.namespace), self.of((Setting.NAMESPACE, owner.namespace))),
            *self.cover_of_topic(owner),
            *self.cover_of_client(owner),
        ]
        return [(name, limit) for name, limit in limits if limit is not None]

    def cover_of_topic(self, owner: Who) -> list[tuple[tuple[str, ...], Limit | None]]:
        group = GROUPS.get(owner.namespace) or GROUPS.get(owner.tenant, "")
        first_of = (
            (Setting.TOPIC, owner.whole),
            (Setting.TOPIC_OF_NAMESPACE, owner.namespace),
            (Setting.TOPIC_OF_BROKER, ""),
        )
        return [
            (("resource_group", group), self.of((Setting.RESOURCE_GROUP, group))),
            (("partitioned_topic", owner.whole), self.of((Setting.PARTITIONED_TOPIC, owner.whole))),
            (("topic", owner.whole, owner.partition), self.of(*first_of)),
        ]

    def cover_of_client(self, owner: Who) -> list[tuple[tuple[str, ...], Limit | None]]:
        limits: list[tuple[tuple[str, ...], Limit | None]] = []
        if owner.producer:
            values = self.of((Setting.PRODUCER, owner.producer), (Setting.PRODUCER, "*"))
            limits.append((("producer", owner.producer, owner.whole), values))
        if owner.role:
            limits.append((("role", owner.role), self.of((Setting.ROLE, owner.role))))
        inside = [net for net in (NARROW, NETWORK) if ip_address(owner.address) in ip_network(net)]
        limits.append((("address", owner.address), self.of(*((Setting.ADDRESS, net) for net in inside))))
        return limits

    def of(self, *settings_in_order: tuple[Setting, str]) -> Limit | None:
        """The first value that is set."""
        return next((limit for each in settings_in_order if (limit := self.table.get(each)) is not None), None)

    @precondition(lambda self: len(self.streams) < MOST_STREAMS)
    @rule(owner=WHO)
    def open(self, owner: Who) -> None:
        stream = self.new_stream()
        self.who[stream] = owner
        topic = parse_topic(owner.whole + owner.partition)
        client = Client(producer_name=owner.producer, role=owner.role, address=owner.address)
        self.registry.open(stream, topic, self.now, client)

    @precondition(lambda self: self.streams)
    @rule(index=WHOSE, name=st.sampled_from(["meter", "standalone-0-1"]))
    def the_broker_names_it(self, index: int, name: str) -> None:
        stream = self.one(index)
        if not self.who[stream].producer:
            self.who[stream] = replace(self.who[stream], producer=name)
            self.registry.name(stream, name, self.now)

    @precondition(lambda self: self.streams)
    @rule(index=WHOSE)
    def close(self, index: int) -> None:
        stream = self.one(index)
        self.dropped(stream, self.registry.close(stream, self.now))
        self.forget(stream)

    @rule(setting=st.sampled_from(SETTINGS), limit=st.none() | VALUES)
    def change(self, setting: tuple[Setting, str], limit: Limit | None) -> None:
        self.ledger.values_changed()
        before = self.tokens()
        self.put(setting, limit)
        self.registry.apply(self.now)
        self.gave_nothing(before)

    @invariant()
    def a_stream_is_under_the_limits_that_it_should_be_under(self) -> None:
        """And streams share a limiter exactly where they share what it is of."""
        limiters: dict[Hashable, Limiter] = {}
        for stream in self.streams:
            chains = stream.chain, stream.observed.chain if stream.observed is not None else ()
            expected = self.cover(self.who[stream])
            for chain, is_observed in zip(chains, (False, True), strict=True):
                names = [(name, limit) for name, limit in expected if (limit.mode == "observe") == is_observed]
                assert [(limiter.scope.level, limiter.limit) for limiter in chain] == [
                    (name[0], limit) for name, limit in names
                ]
                for limiter, (name, _) in zip(chain, names, strict=True):
                    assert limiters.setdefault(name, limiter) is limiter
        assert len(set(limiters.values())) == len(limiters)
        assert all(self.registry.limiters[limiter.scope] is limiter for limiter in limiters.values())


TestLevels = long_run(Levels, at_least=2_400)
