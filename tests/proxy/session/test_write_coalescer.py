"""One call for all who have gathered what they send."""

from collections.abc import Iterator

import pytest

from proxy.session.transport import SocketWriter, WriteCoalescer
from tests.manual_clock import ManualClock
from tests.proxy.manual_loop import ManualLoop


class Rig:
    """Three who gather, and when they were flushed."""

    def __init__(self) -> None:
        self.loop = ManualLoop(ManualClock())
        self.turn_end = WriteCoalescer()
        self.flushed: list[str] = []
        self.calls = 0
        self._call_soon = self.loop.call_soon
        self.loop.call_soon = self._counted  # type: ignore[method-assign, assignment]

    def gather(self, *names: str, broken: str = "", adds: str = "") -> None:
        rig = self

        class Gatherer(SocketWriter):
            def __init__(self, name: str) -> None:
                super().__init__(rig.turn_end, None)
                self.name = name

            def flush(self) -> None:
                rig.flushed.append(self.name)
                if self.name == broken:
                    raise RuntimeError(broken)
                if self.name == adds:
                    rig.turn_end.await_by(Gatherer("added"))

        def turn() -> None:
            for name in names:
                self.turn_end.await_by(Gatherer(name))
            self.flushed.append("end")

        self.calls = -1
        self.loop.run(turn)

    def _counted(self, *args: object, **more: object) -> object:
        self.calls += 1
        return self._call_soon(*args, **more)  # type: ignore[arg-type]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.loop.close()


def test_all_are_flushed_in_order_by_one_call_when_the_turn_is_over(rig: Rig) -> None:
    rig.gather("a", "b", "a")
    assert (rig.flushed, rig.calls) == (["end", "a", "b", "a"], 1)
    rig.gather("c")
    assert (rig.flushed[4:], rig.calls, rig.loop.trouble) == (["end", "c"], 1, [])


@pytest.mark.parametrize("adds", ["a", "b"])
def test_who_gathers_while_others_are_flushed_is_flushed_by_one_call_more(rig: Rig, adds: str) -> None:
    rig.gather("a", "b", adds=adds)
    assert (rig.flushed, rig.calls) == (["end", "a", "b", "added"], 2)


def test_what_gathers_again_and_again_keeps_nothing_else_from_its_turn(rig: Rig) -> None:
    def gather_again() -> None:
        rig.turn_end.await_by(endless)

    class Endless(SocketWriter):
        times = 0

        def flush(self) -> None:
            self.times += 1
            if self.times < 5:
                gather_again()
            rig.loop.call_soon(rig.flushed.append, f"turn {self.times}")

    endless = Endless(rig.turn_end, None)
    rig.loop.run(gather_again)
    assert rig.flushed == [f"turn {number}" for number in range(1, 6)]


def test_what_is_wrong_with_one_keeps_nobody_else_back(rig: Rig) -> None:
    rig.gather("a", "b", "c", broken="b")
    assert rig.flushed == ["end", "a", "b", "c"]
    assert len(rig.loop.trouble) == 1
    assert "b" in rig.loop.trouble[0]
