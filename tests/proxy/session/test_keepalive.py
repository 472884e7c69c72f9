"""Signs of life while a peer is not read, and the search for peers that are gone."""

from collections.abc import Callable

from proxy.session.keep_alive import LOOK_S, OFTEN, SELDOM, KeepAlive
from tests.proxy.manual_loop import ManualLoop

KEEP_ALIVE = 30.0
INTERVAL_S, SELDOM_S = OFTEN * KEEP_ALIVE, SELDOM * KEEP_ALIVE


def _nothing() -> None:
    pass


def make(
    send: Callable[[], object] = _nothing,
    look: Callable[[], object] = _nothing,
    holds: Callable[[], bool] = lambda: True,
    probe: Callable[[], object] = _nothing,
) -> KeepAlive:
    return KeepAlive(KEEP_ALIVE, send, look, holds, probe)


def test_signs_come_at_intervals_short_enough_for_every_client(loop: ManualLoop) -> None:
    """C++ and Python clients give up after 60 s without a command, some peers after 30 s."""
    sent: list[float] = []
    keep_alive = make(lambda: sent.append(loop.time()))
    loop.run(keep_alive.start)
    loop.run(keep_alive.start)
    loop.advance(3.2 * INTERVAL_S)
    assert sent == [INTERVAL_S, 2 * INTERVAL_S, 3 * INTERVAL_S]
    assert INTERVAL_S < 30


def test_switched_off_no_timer_runs(loop: ManualLoop) -> None:
    sent: list[float] = []
    keep_alive = make(lambda: sent.append(loop.time()))
    loop.run(keep_alive.start)
    loop.advance(INTERVAL_S - 1)
    loop.run(keep_alive.stop)
    loop.run(keep_alive.stop)
    loop.advance(100)
    assert sent == []
    assert loop.timers == []


def test_whoever_is_told_to_stop_by_its_own_sign_stops(loop: ManualLoop) -> None:
    """Sending may find out that the connection is gone."""
    sent: list[float] = []

    def send() -> None:
        sent.append(loop.time())
        keep_alive.stop()

    keep_alive = make(send)
    loop.run(keep_alive.start)
    loop.advance(100)
    assert sent == [INTERVAL_S]


def test_looks_are_many_between_two_signs_and_may_end_it_all(loop: ManualLoop) -> None:
    looks: list[float] = []

    def look() -> None:
        looks.append(loop.time())
        if len(looks) == 3:
            keep_alive.stop()

    keep_alive = make(look=look)
    loop.run(keep_alive.start)
    loop.advance(100)
    assert looks == [LOOK_S, 2 * LOOK_S, 3 * LOOK_S]
    assert loop.timers == []


def test_while_nothing_is_held_signs_are_few_and_nobody_looks(loop: ManualLoop) -> None:
    """A client that has closed its connection would answer a sign with a reset, and throw away what is under way."""
    calls: list[tuple[str, float]] = []
    holds = [False]
    keep_alive = make(
        lambda: calls.append(("sign", loop.time())), lambda: calls.append(("look", loop.time())), lambda: holds[0]
    )
    loop.run(keep_alive.start)
    loop.advance(SELDOM_S + 1)
    assert calls == [("sign", SELDOM_S)]
    assert SELDOM_S < 30
    holds[0] = True
    loop.advance(LOOK_S)
    assert [kind for kind, _ in calls[1:]] == ["look"]
    loop.run(keep_alive.stop)


def test_looks_at_peers_go_on_where_a_limit_pauses_each_message(loop: ManualLoop) -> None:
    probes: list[float] = []
    keep_alive = make(probe=lambda: probes.append(loop.time()))
    for _ in range(round(4 * INTERVAL_S)):
        for _ in range(10):
            loop.run(keep_alive.start)
            loop.advance(0.09)
            loop.run(keep_alive.stop)
            loop.advance(0.01)
    assert len(probes) == 3
    assert loop.timers == []


def test_a_pause_after_a_rest_begins_its_time_anew(loop: ManualLoop) -> None:
    sent: list[float] = []
    keep_alive = make(lambda: sent.append(loop.time()))
    loop.run(keep_alive.start)
    loop.advance(INTERVAL_S - 1)
    loop.run(keep_alive.stop)
    loop.advance(100)
    began = loop.time()
    loop.run(keep_alive.start)
    loop.advance(INTERVAL_S + 1)
    loop.run(keep_alive.stop)
    assert sent == [began + INTERVAL_S]
