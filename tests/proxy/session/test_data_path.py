"""One direction of a session."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.frames import MESSAGE, SEND, FrameTooLarge
from proxy.budgets import ENTRY_OVERHEAD
from proxy.session.transport import PauseReason
from tests.examples import examples
from tests.limiter.fitting import fits
from tests.proxy.relay_rig import RelayRig
from tests.proxy.wire import PING, PONG, message, send, sends, unknown_command

FRAME = len(send(0))
HELD = FRAME + ENTRY_OVERHEAD


def test_what_fits_the_limits_is_written_as_the_chunk_it_came_in() -> None:
    rig = RelayRig([1000])
    rig.feed(b"".join(sends(5)))
    assert rig.written == b"".join(sends(5))
    assert rig.relay.passes
    assert rig.writes == 1
    assert rig.relay.streams[1].usage.passed_entries == 5


def test_a_chunk_that_does_not_fit_is_cut_and_charged_once() -> None:
    rig = RelayRig([1000, 1])
    rig.feed(b"".join([*sends(2, 1), *sends(2, 2), *sends(2, 1, start=2)]))
    assert rig.frames() == [*sends(2, 1), send(0, 2), *sends(2, 1, start=2)]
    usage = rig.relay.streams[1].usage
    assert (usage.offered_entries, usage.passed_entries) == (4, 4)
    assert rig.relay.streams[1].chain[0].usage.messages == 4
    (limiter,) = rig.relay.streams[1].chain
    assert fits(limiter, 96, 0, rig.clock()), "the first attempt was taken back: 4 + 96 are the burst of 100"
    assert not fits(limiter, 97, 0, rig.clock())


def test_what_fits_passes_as_it_came_though_another_of_the_connection_is_held() -> None:
    rig = RelayRig([1, None])
    rig.feed(b"".join(sends(3, 1)))
    assert rig.relay.holds_any()
    written = rig.writes
    rig.feed(b"".join(sends(5, 2)))
    assert rig.relay.passes
    assert (rig.writes, rig.frames()) == (written + 1, [send(0, 1), *sends(5, 2)])
    rig.feed(b"".join([*sends(1, 1, start=3), *sends(1, 2, start=5)]))
    assert not rig.relay.passes, "of the first of these something is held"
    assert rig.frames()[-1] == send(5, 2)


def test_a_pause_leaves_the_rest_of_what_was_read_for_later() -> None:
    rig = RelayRig([1], hold_limit=2 * HELD)
    rig.feed(b"".join([*sends(5), PING]))
    assert rig.relay.backlog == b"".join([*sends(2, start=3), PING])
    rig.advance(0.999)
    assert (rig.reading.pauses, rig.reading.resumes) == (1, 0)
    rig.advance(0.001)
    assert rig.frames() == [send(0), send(1)]
    assert rig.relay.backlog == b"".join([send(4), PING]), "half was free for an instant, one more filled it again"
    rig.advance(3)
    assert rig.frames() == [send(2), send(3), PING, send(4)]
    assert rig.reading.pauses == rig.reading.resumes


def test_a_pause_during_a_frame_waits_for_its_end() -> None:
    rig = RelayRig([None])
    frame = send(0, size=500)
    rig.feed(frame[:100])
    rig.throttle(PauseReason.WRITE_BUFFER, on=True)
    rig.relay.feed(frame[100:] + PING, len(frame[100:] + PING))  # a transport may still deliver what it had read
    assert rig.frames() == [frame]
    assert rig.relay.backlog == PING
    rig.throttle(PauseReason.WRITE_BUFFER, on=False)
    assert rig.frames() == [PING]


def test_a_chunk_that_comes_during_a_pause_joins_what_was_left_over() -> None:
    rig = RelayRig([None])
    rig.throttle(PauseReason.WRITE_BUFFER, on=True)
    rig.relay.feed(PING + PING, 2 * len(PING))
    rig.relay.feed(PONG, len(PONG))
    assert rig.frames() == [PING]
    rig.throttle(PauseReason.WRITE_BUFFER, on=False)
    assert rig.frames() == [PING, PONG]


def test_a_frame_over_the_limit_is_refused() -> None:
    rig = RelayRig([None])
    with pytest.raises(FrameTooLarge):
        rig.feed(send(0, size=20_000))


FrameKind = tuple[str, int, int, int]
Action = tuple[str, int]

FRAMES = st.lists(
    st.tuples(
        st.sampled_from(["entry", "entry", "entry", "ping", "unknown"]),
        st.integers(1, 4),  # the fourth stream is one that nobody opened
        st.one_of(st.integers(0, 120), st.just(3000)),  # bytes
        st.integers(1, 4),  # messages
    ),
    min_size=8,
    max_size=40,
)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("feed"), st.integers(1, 100)),
        st.tuples(st.just("feed"), st.integers(1, 400)),
        st.tuples(st.just("feed"), st.integers(1, 20_000)),
        st.tuples(st.just("advance"), st.integers(1, 3000)),
        st.tuples(st.sampled_from(["pause", "drain", "insert", "turn"]), st.just(0)),
    ),
    min_size=15,
    max_size=60,
)
LIMITS = st.lists(st.sampled_from([1, None, 3, 50]), min_size=3, max_size=3)


def built(kinds: Sequence[FrameKind], payload_kind: int) -> list[bytes]:
    frames = []
    for number, (kind, owner, size, count) in enumerate(kinds):
        if kind == "ping":
            frames.append(PING)
        elif kind == "unknown":
            frames.append(unknown_command(45, b"%d" % number))
        elif payload_kind == SEND:
            frames.append(send(number, owner, messages=count, size=size))
        else:
            frames.append(message(number, owner, messages=count, size=size))
    return frames


def act(rig: RelayRig, action: Action, stream: bytes) -> tuple[bytes, int]:
    """Do it; gives what is left of `stream` and how many frames were inserted."""
    kind, amount = action
    if kind == "feed":
        rig.feed(stream[:amount])
        return stream[amount:], 0
    if kind == "advance":
        rig.advance(amount / 1000)
    elif kind == "insert":
        rig.outlet.insert(PONG)
        return stream, 1
    elif kind == "pause":
        rig.throttle(PauseReason.WRITE_BUFFER, on=True)
    elif kind == "turn":
        rig.sender.flush()
    else:
        rig.drain()
    return stream, 0


@pytest.mark.parametrize("payload_kind", [SEND, MESSAGE])
@settings(max_examples=examples(60), deadline=None)
@given(kinds=FRAMES, actions=ACTIONS, limits=LIMITS, bounds=st.tuples(st.integers(1, 2000), st.integers(1, 2000)))
def test_every_frame_comes_out_once_and_each_stream_in_order_whatever_happens(
    payload_kind: int, kinds: list[FrameKind], actions: list[Action], limits: list[int | None], bounds: tuple[int, int]
) -> None:
    """Any frames, any chunks, any limits, pauses and foreign frames at any time; entries of no stream go nowhere.

    What is to be written soon is written at any later time.
    """
    hold_limit, write_limit = bounds
    rig = RelayRig(limits, hold_limit, payload_kind)
    rig.write_limit, rig.sender.soon = write_limit, []
    frames = built(kinds, payload_kind)
    stream, inserted = b"".join(frames), 0
    for action in actions:
        stream, more = act(rig, action, stream)
        inserted += more
    rig.feed(stream)
    rig.write_limit = 10**9
    rig.drain()
    rig.advance(10_000)
    rig.sender.flush()

    came = rig.frames()
    assert rig.is_idle
    assert not rig.outlet.mid_frame
    assert rig.budget.used == 0
    assert rig.reading.pauses == rig.reading.resumes
    assert came.count(PONG) == inserted
    for owner in range(len(limits) + 1):
        sent = [
            frame for frame, (kind, stream_id, *_) in zip(frames, kinds, strict=True) if is_of(kind, stream_id, owner)
        ]
        assert [frame for frame in came if frame in sent] == sent
    nobodys = sum(kind == "entry" and stream_id > len(limits) for kind, stream_id, *_ in kinds)
    assert rig.counters.entries_ignored == nobodys
    assert len(came) == len(frames) - nobodys + inserted


def is_of(kind: str, stream_id: int, owner: int) -> bool:
    """Commands form a stream of their own, number 0."""
    return (stream_id if kind == "entry" else 0) == owner


@given(kinds=FRAMES, actions=ACTIONS, limit=st.sampled_from([1, 3, 50]))
def test_at_no_time_more_has_passed_than_the_limit_allows(
    kinds: list[FrameKind], actions: list[Action], limit: int
) -> None:
    rig = RelayRig([limit, limit, limit])
    stream = b"".join(built(kinds, SEND))
    for action in actions:
        stream, _ = act(rig, action, stream)
        for owner in (1, 2, 3):
            passed = rig.relay.streams[owner].usage.passed_messages
            assert passed <= max(limit // 10, 1) + limit * rig.clock.now / 1e9 + 4
