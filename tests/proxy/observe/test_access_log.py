"""What is written into the access log, and in which order."""

from typing import cast

import msgspec

from accesslog.record import AnyLine, ChangeLine, ConnectionLine, HeartbeatLine, IntervalLine, LimitLine, ThrottleLine
from limiter.limiter import Stream, StreamName
from proxy.observe.access_log import MOST_CHANGE_TEXT, AccessLog, new_boot_id
from proxy.observe.connection import Connection
from proxy.observe.log_files import LogFiles
from proxy.observe.log_lines import AT_ONCE, LineSpan, Writer
from tests.proxy.conversation import RecordingFiles, World, publisher
from tests.proxy.wire import TOPIC, send, sends

SPAN = LineSpan(1_700_000_000_000_000_123, 1_700_000_001_000_000_999, 1_000_000_500, 9_000_000_999)


def test_times_are_utc_and_spans_are_the_monotonic_clocks() -> None:
    fields = SPAN.fields()
    assert fields["start"].isoformat() == "2023-11-14T22:13:20+00:00"
    assert fields["end"].isoformat() == "2023-11-14T22:13:21+00:00"
    assert fields["duration_ms"] == 1000.0005


def test_every_line_is_numbered_without_gaps() -> None:
    files = RecordingFiles()
    log = AccessLog(Writer("p", "boot"), cast("LogFiles", files))
    connection = Connection(3, "192.0.2.1:5", "client", "data", "b:6650")
    log.throttle(SPAN, connection, "client", "write_buffer")
    log.connection(SPAN, connection, end_cause="client_closed", detail="", bytes_from_client=1, bytes_from_broker=2)
    log.heartbeat(SPAN, last=True)
    decoder = msgspec.json.Decoder(AnyLine)
    lines = [decoder.decode(line) for line in files.data.splitlines()]
    assert [type(line) for line in lines] == [ThrottleLine, ConnectionLine, HeartbeatLine]
    assert [line.seq for line in lines] == [0, 1, 2]
    assert {(line.proxy_id, line.boot_id) for line in lines} == {("p", "boot")}
    assert files.data.endswith(b"\n")
    assert log.lines == 3


def test_a_change_is_written_at_once() -> None:
    files = RecordingFiles()
    log = AccessLog(Writer("p", "boot"), cast("LogFiles", files))
    fields = {"who": "ann", "address": "a", "what": "block", "setting": "", "name": "role 'r'"}
    log.change(
        LineSpan.between((5_000_000_000, 7_000), (5_000_000_000, 7_000)), **fields, before=None, after="x" * 2000
    )
    (line,) = [msgspec.json.decode(line, type=AnyLine) for line in files.data.splitlines()]
    assert isinstance(line, ChangeLine)
    assert (line.who, line.before, line.after) == ("ann", None, "x" * (MOST_CHANGE_TEXT - 1) + "…")
    assert b'"before":null' in files.data


def test_without_files_lines_are_counted_and_kept_nowhere() -> None:
    log = AccessLog(Writer("p", "boot"), None)
    log.heartbeat(SPAN, last=False)
    assert log.lines == 1
    assert log.dropped_lines == 0
    assert log.close()


def test_dropped_lines_are_told_in_the_heartbeat() -> None:
    files = RecordingFiles()
    log = AccessLog(Writer("p", "boot"), cast("LogFiles", files))
    files.losses.total = 7
    log.heartbeat(SPAN, last=False)
    (line,) = [msgspec.json.decode(line, type=AnyLine) for line in files.data.splitlines()]
    assert line.dropped_lines == 7
    assert not line.last


def test_a_conversation_leaves_lines_that_decode_and_have_no_gap(make_world) -> None:
    world: World = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1, "bytes": "10MB"}}}})
    client, _ = publisher(world)
    client >> sends(5)
    world.advance(3.5)
    client.leave()
    world.advance(2)
    lines = world.lines()
    assert [line.seq for line in lines] == list(range(len(lines)))
    assert {type(line) for line in lines} >= {IntervalLine, LimitLine, ConnectionLine, HeartbeatLine}


def test_an_interval_line_says_who_what_and_which_limit(make_world) -> None:
    world: World = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, _ = publisher(world)
    client >> [send(0, size=100), send(1, size=200), send(2, size=300)]
    world.advance(1)
    line = world.lines(IntervalLine)[0]
    assert (line.tenant, line.namespace, line.topic, line.direction) == ("acme", "shop", TOPIC, "publish")
    assert (line.connection_id, line.client_address, line.client_version) == (1, "192.0.2.7:40001", "test-client")
    assert (line.stream_id, line.producer_name, line.subscription) == (1, "named-by-broker", "")
    assert (line.offered_entries, line.offered_messages, line.offered_bytes) == (3, 3, 600)
    assert (line.limit_level, line.limit_messages, line.limit_bytes) == ("topic", 1.0, None)
    assert line.reason == "topic"
    passed = sum(line.passed_bytes for line in world.lines(IntervalLine))
    held = world.lines(IntervalLine)[-1].held_bytes
    assert passed + held == 600


def test_a_limit_line_says_what_was_in_force(make_world) -> None:
    world: World = make_world(limits={"namespaces": {"acme/shop": {"publish": {"messages": "30/min"}}}})
    client, _ = publisher(world)
    client >> [send(0, size=100)]
    world.advance(1)
    (line,) = world.lines(LimitLine)
    assert (line.level, line.name, line.source, line.mode) == ("topic", TOPIC, "namespace file", "enforce")
    assert (line.limit_messages, line.limit_bytes, line.burst_messages, line.burst_bytes) == (0.5, None, 3.0, None)
    assert (line.passed_entries, line.passed_messages, line.passed_bytes) == (1, 1, 100)
    assert (line.largest_entry_messages, line.largest_entry_bytes) == (1, 100)


def test_boots_have_names_of_their_own_that_sort_by_time() -> None:
    names = {new_boot_id() for _ in range(50)}
    assert len(names) == 50
    assert all(len(name) == len("20231114T221320-00000000") for name in names)


def test_of_an_interval_with_many_streams_only_some_lines_wait_to_be_written(make_world) -> None:
    files = RecordingFiles()
    lines = AccessLog(Writer("p", "boot"), cast("LogFiles", files)).periodic(make_world().engine.registry)
    name = StreamName("publish", "t", "n", "persistent://t/n/x", 1)
    stream = Stream(name, (), lambda _stream, _entry: None, Connection(3))
    sizes = [0]
    for _ in range(3 * AT_ONCE):
        lines.interval(SPAN, stream, {"throttled_ms": 0, "rejected_messages": 0, "rejected_bytes": 0})
        if len(files.data) > sizes[-1]:
            sizes.append(len(files.data))
    assert len(sizes) == 4, "three pieces"
    assert files.data.count(b"\n") == 3 * AT_ONCE
