"""Values change in slices while streams open and close: in the end each stream has the limits in force."""

from dataclasses import replace
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.levels import About, Client, Setting
from limiter.limiter import Limiter, Stream, StreamName
from limiter.policies import Change, Policies, Value, change_of
from limiter.registry import Registry, windows_of
from limiter.token_bucket import Direction, Limit, Mode, rate
from protocol.topic_name import parse_topic
from tests.examples import examples
from tests.limiter.world import World

X, Y = "persistent://t/n/x", "persistent://u/m/y"
NAMES: dict[Setting, tuple[str, ...]] = {
    Setting.PROXY: ("",),
    Setting.TENANT: ("t", "t*", "*"),
    Setting.NAMESPACE: ("t/n", "t/*", "*/*"),
    Setting.RESOURCE_GROUP: ("gold",),
    Setting.PARTITIONED_TOPIC: (X,),
    Setting.TOPIC: (X, Y),
    Setting.TOPIC_OF_NAMESPACE: ("t/n", "*/n"),
    Setting.TOPIC_OF_BROKER: ("",),
    Setting.SUBSCRIPTION: (f"s@{X}",),
    Setting.SUBSCRIPTION_OF_TOPIC: (X,),
    Setting.SUBSCRIPTION_OF_NAMESPACE: ("t/n", "t/*"),
    Setting.SUBSCRIPTION_OF_BROKER: ("",),
    Setting.PRODUCER: ("p", "*"),
    Setting.ROLE: ("r", "*"),
    Setting.ADDRESS: ("10.0.0.1", "10.0.0.0/8"),
}
assert {*NAMES, Setting.EXEMPT} == set(Setting), "a setting that this machine does not change"
PLACES = st.sampled_from([(setting, name) for setting, names in NAMES.items() for name in names])
FEW_PLACES = st.lists(PLACES, min_size=1, max_size=2)
DIRECTIONS = st.sampled_from(get_args(Direction))
SOME_LIMIT = st.builds(
    Limit,
    st.sampled_from([rate(5), rate(100), None]),
    st.sampled_from([None, rate(1000)]),
    mode=st.sampled_from(get_args(Mode)),
)
LIMITS = st.one_of(SOME_LIMIT, SOME_LIMIT, SOME_LIMIT, st.none())
CLIENTS = st.builds(
    Client,
    producer_name=st.sampled_from(["p", "q"]),
    role=st.sampled_from(["", "r"]),
    address=st.sampled_from(["10.0.0.1", "11.0.0.1"]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), DIRECTIONS, st.integers(0, 1), LIMITS),
        st.tuples(st.just("put"), DIRECTIONS, st.integers(0, 1), LIMITS),
        st.tuples(st.just("open"), DIRECTIONS, st.sampled_from([X, Y, f"{X}-partition-1"]), CLIENTS),
        st.tuples(st.just("close"), st.integers(0, 20)),
        st.tuples(st.just("rename"), st.integers(0, 20)),
        st.tuples(st.just("offer_some"), st.integers(0, 20), st.integers(1, 30)),
        st.tuples(st.just("slice"), st.integers(1, 3)),
        st.tuples(st.just("attach"), st.booleans()),
    ),
    min_size=30,
    max_size=60,
)


class Slices(World):
    """A registry that puts changes in force in slices as small as one."""

    def __init__(self, places: list[tuple[Setting, str]]) -> None:
        super().__init__()
        self.places = places
        self.policies = Policies()
        self.registry = Registry(self.policies, self.scheduler, self.observer)

    @property
    def live(self) -> list[Stream]:
        return self.registry.live()

    def put(self, about: About, which: int, limit: Limit | None) -> None:
        place = self.places[which % len(self.places)]
        before = self.policies.by_name(about, place[0]).get(place[1])
        after = Value(limit, "rest") if limit is not None else None
        self.policies.put(about, *place, after)
        self.changed(change_of((about, *place), before, after))

    def changed(self, *changes: Change | None) -> None:
        """As `Registry.change`, with nothing done yet."""
        self.registry._looking.extend(self.registry._looks(change) for change in filter(None, changes))

    def open(self, direction: Direction, topic: str, client: Client) -> None:
        stream = self.stream()
        subscription = "s" if direction == "dispatch" else ""
        stream.name = StreamName(direction, "t", "n", topic, 1, client.producer_name, subscription)
        owner = replace(client, subscription=subscription)
        if direction == "dispatch":
            owner = replace(owner, producer_name="")
        self.registry.open(stream, parse_topic(topic), self.clock.now, owner)
        if direction == "dispatch":
            self.registry.meter(stream, lambda _permits: None)

    def close(self, which: int) -> None:
        if self.live:
            self.registry.close(self.live[which % len(self.live)], self.clock.now)

    def rename(self, which: int) -> None:
        producers = [stream for stream in self.live if stream.name.direction == "publish"]
        if producers:
            self.registry.name(producers[which % len(producers)], "q", self.clock.now)

    def offer_some(self, which: int, messages: int) -> None:
        if self.live:
            self.offer(self.live[which % len(self.live)], messages, 10 * messages)

    def slice(self, most: int) -> None:
        self.registry.go_on(self.clock.now, most)

    def attach(self, is_attached: bool) -> None:  # noqa: FBT001 - drawn
        self.policies.groups_of_namespaces = {"t/n": "gold"} if is_attached else {}
        self.changed(*(Change(about, Setting.NAMESPACE, "t/n") for about in get_args(Direction)))

    def check(self) -> None:
        for stream in self.live:
            topic, client = self.registry._live[stream]
            in_force = self.policies.in_force(stream.name.direction, topic, client)
            for is_observed, chain in ((False, stream.chain), (True, observed_by(stream))):
                wanted = [entry for entry in in_force if (entry.limit.mode == "observe") == is_observed]
                assert [(limiter.scope, limiter.limit, limiter.source) for limiter in chain] == [
                    (entry.scope, entry.limit, entry.source) for entry in wanted
                ]
                assert all(self.registry.limiters[limiter.scope] is limiter for limiter in chain)
            if stream.permits is not None:
                assert stream.permits.windows == windows_of(stream.chain)
            assert stream.waits_on in stream.chain if stream.held else stream.waits_on is None


def observed_by(stream: Stream) -> tuple[Limiter, ...]:
    return stream.observed.chain if stream.observed is not None else ()


@settings(max_examples=examples(60), deadline=None)
@given(places=FEW_PLACES, steps=STEPS)
def test_in_the_end_every_stream_has_the_limits_that_it_would_be_opened_with(places, steps) -> None:
    world = Slices(places)
    for topic in (X, Y):
        for direction in get_args(Direction):
            world.open(direction, topic, Client(producer_name="p", role="r", address="10.0.0.1"))
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
    while world.registry.is_changing:
        world.slice(1)
    world.check()
