"""The file with balances is taken once, by the run after the one that left it; all else begins empty."""

import errno
import os
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.limiter import LeftBalances, Limiter, Scope
from limiter.restart import FirstBalances, at
from limiter.token_bucket import LeftBalance
from proxy import limit_state
from proxy.limit_state import LimitState, StateError, retire
from tests.limiter.test_token_bucket import RATES
from tests.limiter.world import limiter
from tests.manual_clock import ManualClock

SECOND = 1_000_000_000
NAME = "front.limits"


class Runs:
    """Runs of one proxy, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / NAME
        self.clock = ManualClock(1000 * SECOND)
        self.count = 0

    def start(self, proxy_id: str = "front", shared: tuple[str, ...] = (), processes: int = 1) -> LimitState:
        self.count += 1
        return LimitState(self.folder, proxy_id, f"run-{self.count}", shared, self.clock, processes)

    def serve(self) -> LimitState:
        state = self.start()
        state.serve()
        return state

    def left(self, balance: int = -5) -> LimitState:
        """A run that has ended in order, with one limiter of 10/s that has this balance, and one that is full."""
        state = self.serve()
        self.clock.advance(100)
        state.end([self.limiter(balance), limiter(10, name="full", now=self.clock.now)])
        return state

    def limiter(self, balance: int, name: str = "x") -> Limiter:
        made = limiter(10, name=name, burst=20, now=self.clock.now)
        made.charge(20 - balance, 0, self.clock.now)
        return made

    def began_with(self, state: LimitState, name: str = "x") -> float:
        """The balance with which a limiter of 10/s and a burst of 20 begins."""
        made = limiter(10, name=name, burst=20, now=self.clock.now)
        state.first.begin(made, self.clock.now)
        balance = made.balances(self.clock.now)[0]
        assert balance is not None
        return balance[0]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "state")


def test_first_start_begins_empty(runs: Runs) -> None:
    state = runs.start()
    assert state.found == "missing"
    runs.clock.advance(0.5)
    assert runs.began_with(state) == 5


def test_balances_are_loaded_once(runs: Runs) -> None:
    runs.left()
    runs.clock.advance(0.2)
    second = runs.start()
    assert second.found == "loaded"
    assert (runs.began_with(second), runs.began_with(second, "full")) == (-3, 20)
    third = runs.start()
    assert third.found == "killed"
    assert (runs.began_with(third), runs.began_with(third, "full")) == (0, 0)


@pytest.mark.parametrize(("has_left", "balance"), [(True, -3), (False, 0)], ids=["in order", "by a kill"])
def test_balances_that_come_before_a_run_serves_are_taken(runs: Runs, *, has_left: bool, balance: int) -> None:
    """The run before ends while this one is about to take over from it."""
    before, waiting = runs.serve(), runs.start()
    first = waiting.first
    if has_left:
        before.end([runs.limiter(-5)], is_awaited=True)
    runs.clock.advance(0.2)
    waiting.take_again()
    assert waiting.found == ("loaded" if has_left else "killed")
    assert waiting.first is first
    assert runs.began_with(waiting) == balance
    assert runs.start().found == "killed"


def test_killed_run_makes_the_next_one_begin_empty(runs: Runs) -> None:
    runs.left()
    runs.serve()
    after = runs.serve()
    assert after.found == "killed"
    assert "run-2 was killed" in after.detail
    assert runs.began_with(after) == 0


@pytest.mark.parametrize(
    ("left_by", "begins", "removed"),
    [
        ("front", ("front", 2), ["front.limits"]),
        ("front-1", ("front", 1), ["front-1.limits"]),
        ("front-2", ("front", 2), ["front-2.limits"]),
        ("front-1", ("front", 2), []),
        ("front", ("front", 1), []),
        ("front-x", ("front", 1), []),
        ("frontier", ("front", 2), []),
    ],
)
def test_balances_of_another_number_of_processes_are_removed(
    runs: Runs, left_by: str, begins: tuple[str, int], removed: list[str]
) -> None:
    state = runs.start(left_by, processes=1 if left_by == "front" else 3)
    state.serve()
    state.end([runs.limiter(-5)])
    assert retire(runs.folder, *begins) == removed
    assert runs.start(left_by).found == ("missing" if removed else "loaded")


def test_balances_of_a_proxy_with_the_name_of_a_process_are_kept(runs: Runs) -> None:
    state = runs.start("front-1")
    state.serve()
    state.end([runs.limiter(-5)])
    assert retire(runs.folder, "front", 1) == []
    assert runs.start("front-1").found == "loaded"


def test_mark_of_another_number_of_processes_is_kept(runs: Runs) -> None:
    runs.start("front-1").serve()
    assert retire(runs.folder, "front", 1) == []
    assert runs.start("front-1").found == "killed"


def test_limiters_stay_empty_through_an_orderly_end_after_a_kill(runs: Runs) -> None:
    runs.serve()
    runs.clock.advance(0.3)
    second = runs.serve()
    runs.clock.advance(0.4)
    second.end([])
    runs.clock.advance(0.2)
    third = runs.start()
    assert third.found == "loaded"
    assert runs.began_with(third) == 6


def test_run_leaves_nothing_after_another_has_begun(runs: Runs) -> None:
    first = runs.serve()
    second = runs.serve()
    with pytest.raises(StateError, match="another run of the same proxy_id"):
        first.end([runs.limiter(20)])
    second.end([runs.limiter(7)])
    third = runs.start()
    assert (third.found, runs.began_with(third)) == ("loaded", 7)


def test_run_leaves_nothing_after_its_file_was_removed(runs: Runs) -> None:
    state = runs.serve()
    runs.file.unlink()
    with pytest.raises(StateError, match="its file was removed"):
        state.end([])
    assert not runs.file.exists()


def test_run_that_never_serves_leaves_what_it_found(runs: Runs) -> None:
    runs.left()
    before = runs.file.read_bytes()
    state = runs.start()
    assert runs.file.read_bytes() != before
    assert state.end([runs.limiter(20)]) is None
    assert runs.file.read_bytes() == before


def test_run_that_never_serves_leaves_no_file_of_its_own(runs: Runs) -> None:
    runs.start().end([])
    assert not runs.file.exists()


def test_two_starts_at_once_take_one_state_once(runs: Runs) -> None:
    runs.left()
    states: list[LimitState] = []
    threads = [Thread(target=lambda: states.append(runs.start())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(state.found for state in states) == ["killed"] * 7 + ["loaded"]


def test_file_is_for_its_user_alone(runs: Runs) -> None:
    runs.left()
    assert runs.folder.stat().st_mode & 0o777 == 0o700
    assert runs.file.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in runs.folder.iterdir()} == {NAME, f".{NAME}.lock"}


def test_torn_or_changed_file_is_refused(runs: Runs) -> None:
    runs.left()
    whole = runs.file.read_bytes()
    places = range(0, len(whole), 13)
    torn = [whole[:size] for size in (*places, len(whole) - 1)]
    changed = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in places]
    for content in (*torn, *changed, whole + b"x"):
        runs.file.write_bytes(content)
        state = runs.start()
        assert state.found == "refused", content
        assert runs.began_with(state) == 0


def test_whole_file_that_does_not_fit_is_refused(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.left()
    whole = runs.file.read_bytes()
    assert runs.start(shared=("topic",)).detail == "the run before shared other levels of limits in a fleet"
    runs.file.with_name("back.limits").write_bytes(whole)
    assert runs.start("back").detail == "it is of another proxy: front"
    runs.file.write_bytes(whole)
    monkeypatch.setattr(limit_state, "VERSION", 2)
    assert runs.start().detail == "it is of version 1, and this Sluice reads version 2"
    runs.file.unlink()
    runs.file.mkdir()
    with pytest.raises(OSError, match="directory"):
        runs.start()
    runs.file.rmdir()
    os.mkfifo(runs.file)
    fifo = runs.start()
    assert (fifo.found, fifo.detail) == ("refused", "it is a FIFO; only regular files are read")


@pytest.mark.parametrize(("left_by", "found_by"), [(1, 2), (2, 1)])
def test_balances_of_another_version_give_no_burst(
    runs: Runs, left_by: int, found_by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may be the next version or the one before; it goes back, and nothing is used again."""
    monkeypatch.setattr(limit_state, "VERSION", left_by)
    runs.left(balance=15)
    left = runs.file.read_bytes()
    monkeypatch.setattr(limit_state, "VERSION", found_by)
    assert runs.start().end([]) is None
    assert runs.file.read_bytes() == left, "a start that fails leaves the file to its own version"
    other = runs.serve()
    assert (other.found, runs.began_with(other)) == ("refused", 0)
    runs.clock.advance(0.3)
    other.end([runs.limiter(3)])
    monkeypatch.setattr(limit_state, "VERSION", left_by)
    back = runs.serve()
    assert (back.found, runs.began_with(back)) == ("refused", 0)
    runs.clock.advance(0.3)
    back.end([runs.limiter(3)])
    assert runs.began_with(runs.start()) == 3


def test_fields_of_a_later_version_are_passed_over(runs: Runs) -> None:
    """Such fields change nothing of the meaning of others; a change of that is another number."""
    runs.left()
    head, *lines = runs.file.read_bytes().splitlines(keepends=True)[:-1]
    more = head.replace(b'{"v":1', b'{"v":1,"node":"n-1"').replace(b'"left":{', b'"left":{"zone":"z-1",')
    assert len(more) == len(head) + len(b',"node":"n-1""zone":"z-1",')
    runs.file.write_bytes(b"".join(limit_state._sealed([more, *lines])))
    state = runs.start()
    assert (state.found, runs.began_with(state)) == ("loaded", -5)


def test_lines_of_a_sealed_file_are_checked(runs: Runs) -> None:
    runs.left()
    lines = runs.file.read_bytes().splitlines(keepends=True)[:-1]
    for bad in (b"{}\n", b"\n", lines[1].replace(b"[10,", b"[0,"), lines[1].replace(b"[10,", b'["10",')):
        runs.file.write_bytes(b"".join(limit_state._sealed([lines[0], bad])))
        assert runs.start().detail.startswith("a line of it cannot be read: ")


def test_time_of_another_machine_earns_nothing(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.left()
    monkeypatch.setattr(limit_state, "_machine", lambda: "another")
    runs.clock.advance(0.4)
    state = runs.start()
    assert (state.found, runs.began_with(state)) == ("loaded", -5)


def test_time_of_an_unknown_machine_earns_nothing(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_state, "_machine", lambda: "")
    runs.left()
    runs.clock.advance(0.4)
    assert runs.began_with(runs.start()) == -5


def test_balances_of_a_later_time_are_as_of_now(runs: Runs) -> None:
    runs.left()
    runs.clock.advance(-500)
    state = runs.start()
    assert (state.found, runs.began_with(state)) == ("loaded", -5)


def _raising(error: BaseException, calls: int):
    """Fails at the call with this number, counted from 0."""
    left = iter(range(calls, -1, -1))

    def fails(*_args: object, **_named: object) -> None:
        if next(left, -1) == 0:
            raise error

    return fails


class Killed(BaseException):
    """The process is killed here."""


@pytest.mark.parametrize("call", [0, 1])
def test_kill_while_the_file_is_written_leaves_no_older_one(
    runs: Runs, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.left(balance=15)
    state = runs.serve()
    assert runs.began_with(state) == 15
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _raising(Killed(), call))
        with pytest.raises(Killed):
            state.end([runs.limiter(-3)])
    after = runs.start()
    expected = [("killed", 0), ("loaded", -3)][call]
    assert (after.found, runs.began_with(after)) == expected
    assert not [path for path in runs.folder.iterdir() if path.name.endswith(".new")]


def test_full_disk_at_the_end_makes_the_next_run_begin_empty(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    state = runs.serve()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _raising(OSError(errno.ENOSPC, "full"), 0))
        with pytest.raises(OSError, match="full"):
            state.end([runs.limiter(3)])
    assert {path.name for path in runs.folder.iterdir()} == {NAME, f".{NAME}.lock"}
    assert runs.start().found == "killed"


def test_full_disk_at_the_start_takes_no_balances(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run cannot mark the file as its own; a later run would take the same balances once more."""
    runs.left(balance=15)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _raising(OSError(errno.ENOSPC, "no space left"), 0))
        state = runs.serve()
    assert state.found == "refused"
    assert state.detail.startswith("it cannot be written: no space left; make room")
    assert runs.began_with(state) == 0
    with pytest.raises(StateError, match=r"^when this run began: it cannot be written: no space left$"):
        state.end([runs.limiter(3)])
    assert runs.start().found == "missing"


def test_folder_that_cannot_be_written_is_an_error(runs: Runs) -> None:
    runs.folder.parent.joinpath("file").touch()
    with pytest.raises(OSError, match=r"Not a directory|exists"):
        LimitState(runs.folder.parent / "file" / "state", "front", "run", (), runs.clock)


def test_limiters_without_room_begin_empty(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_state, "MOST_STATE", 5000)
    state = runs.serve()
    names = [f"topic-{number}" for number in range(100)]
    count = state.end([runs.limiter(7, name) for name in names]) or 0
    assert runs.file.stat().st_size <= 5000
    runs.clock.advance(0.1)
    after = runs.start()
    assert [runs.began_with(after, name) for name in names] == [8] * count + [1] * (100 - count)
    assert 0 < count < 100


BALANCES = st.builds(LeftBalance, RATES, st.integers(-(10**30), -1), RATES)


@settings(max_examples=40)
@given(
    name=st.text(st.characters(exclude_categories=["Cs"])),
    balances=st.tuples(*[st.none() | BALANCES] * 4).filter(any),
)
def test_any_balance_is_read_as_it_was_written(tmp_path_factory, name: str, balances: LeftBalances) -> None:
    runs = Runs(tmp_path_factory.mktemp("state"))
    scope = Scope("dispatch", "subscription", name, "t", "n")
    now = runs.clock.now
    state = runs.serve()
    state.first = FirstBalances({scope: balances}, now)
    state.end([])
    assert dict(runs.start().first.kept(now)) == {scope: at(balances, now, now)}
