"""The lines of streams and limiters, of which what does not change is encoded once."""

import re
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accesslog.record import AnyLine, IntervalLine, LimitLine, upper_bound_ms
from limiter.levels import Setting
from limiter.policies import Value, change_of
from limiter.token_bucket import Limit, rate
from protocol.topic_name import parse_topic
from proxy.observe.log_lines import MOST_NAME, KnownLines, as_they_are, hashed, in_log
from tests.proxy.conversation import World, publisher
from tests.proxy.wire import TOPIC, producer, send, sends

FIELDS = ("client_address", "client_version", "client_role", "role_is_proved", "is_tls", "broker", "certificate_name")
LIMITED = {"namespaces": {"acme/shop": {"publish": {"messages": 2, "burst_messages": 1}}}}


def test_every_line_is_one_that_the_record_would_write(make_world):
    """Though they are put together of parts: the same fields, no other, and none that has its default."""
    world: World = make_world(limits=LIMITED | {"topics": {TOPIC: {"publish": {"messages": 1, "mode": "observe"}}}})
    client, _ = publisher(world)
    client >> sends(9)
    world.advance(3.5)
    client >> [send(9, size=100)]
    world.advance(1)
    client.leave()
    world.advance(2)
    kinds = set()
    for line in world.files.data.splitlines():
        read = msgspec.json.decode(line, type=AnyLine)
        kinds.add(type(read))
        written = msgspec.json.decode(line)
        assert msgspec.json.decode(msgspec.json.encode(read)) == written
    assert kinds >= {IntervalLine, LimitLine}


def test_a_stream_whose_limit_changes_is_encoded_anew(make_world):
    world: World = make_world(limits=LIMITED)
    client, _ = publisher(world)
    client >> [send(0, size=100)]
    world.advance(1)
    world.loop.run(world.intervals.flush)
    new = Value(Limit(rate(50), mode="reject"), "rest")
    world.engine.registry.policies.put("publish", Setting.TOPIC_OF_NAMESPACE, "acme/shop", new)
    world.loop.run(world.engine.policies_changed)
    client >> [send(1, size=100)]
    world.advance(1)
    limits = [(line.limit_messages, line.limit_source, line.limit_mode) for line in world.lines(IntervalLine)]
    assert limits == [(2, "namespace file", "enforce"), (50, "namespace rest", "reject")]
    assert [line.limit_messages for line in world.lines(LimitLine)] == [2, 50]


@pytest.mark.parametrize("field", FIELDS)
def test_a_line_follows_each_change_of_its_connection(make_world, field):
    """What lines say of a connection, and a look-up of earlier lines forgets, would never change."""
    world: World = make_world(limits=LIMITED)
    client, _ = publisher(world)
    client >> [send(0)]
    world.advance(1)
    (stream,) = world.engine.registry.live()
    was = getattr(stream.connection, field)
    setattr(stream.connection, field, not was if isinstance(was, bool) else "192.0.2.9:7")
    client >> [send(1)]
    world.advance(1)
    stream.is_open = False  # then nothing is looked up
    client >> [send(2)]
    world.advance(1)
    stream.is_open = True
    _, kept, fresh = [msgspec.to_builtins(line) for line in world.lines(IntervalLine)]
    texts = [name for name, value in fresh.items() if isinstance(value, str | bool) and name not in {"start", "end"}]
    assert {name: kept.get(name) for name in texts} == {name: fresh[name] for name in texts}


def test_delays_are_counted_by_message_and_add_up(make_world):
    world: World = make_world(limits=LIMITED)
    client, _ = publisher(world)
    client >> sends(5)
    world.advance(4)
    lines = world.lines(IntervalLine)
    held = [sum(line.delay_hist) for line in lines]
    assert sum(held) == 4  # one passed at once
    total = sum(line.delay_sum_ms for line in lines)
    assert total == 500 + 1000 + 1500 + 2000
    for line in lines:
        if line.delay_hist:
            last = len(line.delay_hist) - 1
            assert upper_bound_ms(last - 1) <= line.delay_max_ms < upper_bound_ms(last)


def test_with_a_key_no_address_is_written(make_world):
    limits = {"addresses": {"192.0.2.0/24": {"publish": {"messages": 1, "burst_messages": 1}}}}
    world: World = make_world(limits=limits, shown=hashed(b"k" * 16))
    client, _ = publisher(world)
    client >> sends(3)
    world.advance(2)
    client.leave()
    world.advance(1)
    hash_ = hashed(b"k" * 16)("192.0.2.7")
    assert b"192.0.2.7" not in world.files.data
    assert {line.client_address for line in world.lines(IntervalLine)} == {hash_}
    assert {line.name for line in world.lines(LimitLine)} == {hash_}
    assert hash_ in {line.reason_name for line in world.lines(IntervalLine)}


@pytest.mark.parametrize("shown", [as_they_are, hashed(b"k" * 16)])
def test_an_ipv6_client_is_named_as_limits_of_addresses_name_it(make_world, shown):
    limits = {"addresses": {"2001:db8::/32": {"publish": {"messages": 1}}}}
    world: World = make_world(limits=limits, shown=shown)
    client, _ = publisher(world, address="2001:db8:1:2::7")
    client >> sends(3)
    world.advance(2)
    assert {line.name for line in world.lines(LimitLine)} == {shown("2001:db8:1:2::/64")}
    assert {line.client_network for line in world.lines(IntervalLine)} == {shown("2001:db8:1:2::/64")}


def test_a_stream_names_its_resource_group_while_it_is_attached(make_world):
    group = {"namespaces": ["acme/shop"], "publish": {"messages": 1, "mode": "observe"}}
    world: World = make_world(limits={"resource_groups": {"gold": group}})
    client, _ = publisher(world)
    client >> [send(0, size=100)]
    world.advance(1)
    world.loop.run(world.intervals.flush)
    world.engine.registry.policies.groups_of_namespaces.clear()
    world.loop.run(world.engine.policies_changed)
    client >> [send(1, size=100)]
    world.advance(1)
    assert [line.resource_group for line in world.lines(IntervalLine)] == ["gold", ""]


def test_a_limit_tells_the_capacity_of_its_peak(make_world):
    """A tenth of the peak's period, which its rate by the second does not say."""
    limit = {"messages": 60, "burst_messages": 600, "peak_messages": "12000/min"}
    world: World = make_world(limits={"namespaces": {"acme/shop": {"publish": limit}}})
    client, _ = publisher(world)
    client >> [send(0, size=100)]
    world.advance(1)
    (line,) = world.lines(LimitLine)
    assert (line.peak_messages, line.peak_burst_messages, line.peak_burst_bytes) == (200, 1200, None)


def test_what_is_known_is_encoded_once_while_it_stays_the_same():
    known, encoded = KnownLines[str](), []

    def encode(text):
        encoded.append(text)
        return text

    for state in (1, 1, 2, 2):
        assert known.get("a", state, partial(encode, b"%d" % state)) == b"%d" % state
        known.turn()
    assert encoded == [b"1", b"2"]


def test_who_is_not_active_any_more_is_forgotten():
    known = KnownLines[str]()
    known.get("a", 1, lambda: b"")
    known.turn()
    assert len(known) == 1
    known.turn()
    assert len(known) == 0


def test_levels_are_those_that_should_hold_whatever_a_stream_is_within(make_world, monkeypatch):
    both = {"namespaces": {"acme/shop": {"publish": {"messages": 2}, "publish_total": {"messages": 9}}}}
    world: World = make_world(limits=both)
    registry = world.engine.registry
    registry._limiters._on_kept = lambda _address, _more: None  # one is made here for a stream that is not within it
    chains = registry._chains
    monkeypatch.setattr(registry, "_chains", lambda *which: tuple(some[1:] for some in chains(*which)))
    client, _ = publisher(world)
    client >> send(0)
    world.advance(1)
    assert {limiter.scope.level for stream in registry.live() for limiter in stream.chain} == {"topic"}
    assert [line.limit_levels for line in world.lines(IntervalLine)] == ["namespace topic"]


def test_levels_of_a_change_that_did_not_reach_a_stream_are_those_of_that_change(make_world, monkeypatch):
    world: World = make_world(limits=LIMITED)
    client, _ = publisher(world)
    client >> send(0)
    world.advance(1)
    registry = world.engine.registry
    monkeypatch.setattr(registry._live, "concerned", lambda _change: [])
    value = Value(Limit(rate(50)), "rest")
    registry.policies.put("publish", Setting.NAMESPACE, "acme/shop", value)
    change = change_of(("publish", Setting.NAMESPACE, "acme/shop"), None, value)
    world.loop.run(world.engine.policies_changed, [change])
    client >> send(1)
    world.advance(1)
    assert [line.limit_levels for line in world.lines(IntervalLine)] == [
        "topic",
        "namespace topic",
    ]


@pytest.mark.parametrize(
    "name", ["a" * MOST_NAME, "ä" * (MOST_NAME // 2), '"' * (MOST_NAME // 2), "a-partition-7", "a…b"]
)
def test_a_name_is_logged_as_it_is_where_it_is_not_long(name):
    assert in_log(name) == name


@pytest.mark.parametrize("letter", ["a", "\0", "ä", "\U0001f600", '"'])
def test_a_long_name_takes_a_bounded_part_of_a_line_and_is_like_no_other(letter):
    names = [letter * 4000 + end for end in ("x-partition-7", "y-partition-7")]
    first, second = map(in_log, names)
    assert first != second
    assert in_log(names[0]) == first
    assert parse_topic(f"t/n/{first}").partition == 7
    assert all(len(msgspec.json.encode(name)) <= MOST_NAME for name in (first, second))


@pytest.mark.parametrize("odd", ["\x9b", "\u202e", "\u2028", "\x00", "\x7f", "\u2066"])
def test_name_with_an_odd_character_is_shortened_and_unique(odd):
    """A terminal that shows a line must not obey what a client chose."""
    first, second = in_log(f"orders{odd}x"), in_log(f"orders{odd}{odd}x")
    assert first.isprintable()
    assert first.startswith("orders?x…")
    assert first != second
    assert in_log(f"orders{odd}x") == first != in_log("orders?x") == "orders?x"


def test_a_name_that_looks_like_a_shorter_one_is_another_one():
    long = "v" * 4000
    twin = in_log(long)
    assert in_log(twin) != twin
    assert in_log(in_log(twin)) not in {twin, in_log(twin)}
    assert in_log(f"{twin}-partition-1") != f"{twin}-partition-1"


@given(
    name=st.sampled_from(["p", "p" * 600, "p" * 2000, "p…", "\x01" * 300]),
    topic=st.sampled_from(["x", "x" * 600, "x" * 2000, "x@y" * 500]),
    partition=st.sampled_from(["", "-partition-0", "-partition-17", "-partition-x"]),
)
def test_names_are_joined_and_partitions_left_out_in_the_log_as_outside(name, topic, partition):
    """The compliance job finds the limit of a stream by what it makes of the names in the stream's line."""
    base = f"persistent://t/n/{topic}"
    whole = base + partition
    assert in_log(f"{name}@{whole}") == f"{in_log(name)}@{in_log(whole)}"
    without = re.sub(r"-partition-(0|[1-9]\d{0,9})$", "", in_log(whole))
    assert without == in_log(re.sub(r"-partition-(0|[1-9]\d{0,9})$", "", whole))


def test_lines_of_odd_names_are_bounded_and_equal_the_limits(make_world):
    topic = "persistent://acme/shop/" + "\x01" * 4000
    world: World = make_world(limits=LIMITED)
    client, _ = publisher(world, producer(2, topic, producer_name="\x01" * 4000))
    client >> sends(3, producer_id=2)
    world.advance(1.5)
    written = world.files.data.splitlines()
    assert max(map(len, written)) <= 8 * MOST_NAME
    assert all(line.decode().isprintable() for line in written)
    lines = [msgspec.json.decode(line, type=AnyLine) for line in written]
    (limit,) = {line.name for line in lines if isinstance(line, LimitLine)}
    assert {limit} == {line.topic for line in lines if isinstance(line, IntervalLine)}
    assert limit in {line.reason_name for line in lines if isinstance(line, IntervalLine)}
