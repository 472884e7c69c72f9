"""Signs of life while somebody is not read."""

from proxy.session.session import INTERVAL_S, LOOK_S, SELDOM_S, KeepAlive
from tests.proxy.manual_loop import ManualLoop


def test_signs_come_at_intervals_short_enough_for_every_client(loop: ManualLoop) -> None:
    """C++ and Python clients give up after 60 s without a command, some peers after 30 s."""
    sent: list[float] = []
    keep_alive = KeepAlive(lambda: sent.append(loop.time()), lambda: None, lambda: True)
    loop.run(keep_alive.start)
    loop.run(keep_alive.start)
    loop.advance(3.2 * INTERVAL_S)
    assert sent == [INTERVAL_S, 2 * INTERVAL_S, 3 * INTERVAL_S]
    assert INTERVAL_S < 30


def test_switched_off_no_timer_runs(loop: ManualLoop) -> None:
    sent: list[float] = []
    keep_alive = KeepAlive(lambda: sent.append(loop.time()), lambda: None, lambda: True)
    loop.run(keep_alive.start)
    loop.advance(INTERVAL_S - 1)
    keep_alive.stop()
    keep_alive.stop()
    loop.advance(100)
    assert sent == []
    assert loop.timers == []


def test_whoever_is_told_to_stop_by_its_own_sign_stops(loop: ManualLoop) -> None:
    """Sending may find out that the connection is gone."""
    sent: list[float] = []

    def send() -> None:
        sent.append(loop.time())
        keep_alive.stop()

    keep_alive = KeepAlive(send, lambda: None, lambda: True)
    loop.run(keep_alive.start)
    loop.advance(100)
    assert sent == [INTERVAL_S]


def test_looks_are_many_between_two_signs_and_may_end_it_all(loop: ManualLoop) -> None:
    looks: list[float] = []

    def look() -> None:
        looks.append(loop.time())
        if len(looks) == 3:
            keep_alive.stop()

    keep_alive = KeepAlive(lambda: None, look, lambda: True)
    loop.run(keep_alive.start)
    loop.advance(100)
    assert looks == [LOOK_S, 2 * LOOK_S, 3 * LOOK_S]
    assert loop.timers == []


def test_while_nothing_is_held_signs_are_few_and_nobody_looks(loop: ManualLoop) -> None:
    """A client that has closed its connection would answer a sign with a reset, and throw away what is under way."""
    told: list[tuple[str, float]] = []
    holds = [False]
    keep_alive = KeepAlive(
        lambda: told.append(("sign", loop.time())), lambda: told.append(("look", loop.time())), lambda: holds[0]
    )
    loop.run(keep_alive.start)
    loop.advance(SELDOM_S + 1)
    assert told == [("sign", SELDOM_S)]
    assert SELDOM_S < 30
    holds[0] = True
    loop.advance(LOOK_S)
    assert [what for what, _ in told[1:]] == ["look"]
    keep_alive.stop()
