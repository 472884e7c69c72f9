"""The file by which the balances of limits survive a restart: left at the orderly end of a run, taken once by the next.

    start ──▶ the file is read, checked, and replaced by a mark of this run ──▶ the run serves
    end   ──▶ the mark is still this run's: it is replaced by the balances

So a file with balances is one that the latest run has left, and no run has taken. A mark alone shows that its run was
killed, or that it still runs. Whatever else is found, the next run begins with empty buckets (`limiter/restart.py`): so
after a file of another `VERSION`, an earlier or a later one, which has another number when a field changes its meaning.
With another number of processes a proxy has files of other names; those that are not in use are removed (`retire`).

A file is a line of JSON for the run, a line for each limiter with its balances, and a digest of all of them. Balances
are placed in time by the monotonic clock of the machine, if the same start of that machine shows it: the wall clock may
be stepped between two runs. After a restart of the machine, or on another one, the time between the runs earns nothing.
"""

import errno
import fcntl
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from sys import intern
from typing import Literal

import msgspec

from limiter.limiter import LeftBalances, Limiter, Scope
from limiter.restart import FirstBalances, Left, at
from limiter.token_bucket import LeftBalance, Rate
from proxy.files import open_regular, read_file, replacing

MOST_STATE = 64 * 1024**2
"""Most bytes of a file; 100,000 limiters with names of 100 bytes have 20 MiB. If more limiters are not full, those that
have no room begin empty, as after a kill."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a disk, or a quota, that is full."""
VERSION = 1
_MODE = 0o600
_MACHINE = Path("/proc/sys/kernel/random/boot_id")
_DIGEST = 16
"""Bytes of the digest, which is the last line."""

Found = Literal["loaded", "missing", "killed", "refused"]
"""The state that a start finds. `loaded`: balances. `missing`: no file. `killed`: the run before has left its mark
alone. `refused`: a file that cannot be used."""


class _Left(msgspec.Struct, frozen=True):
    """The balances of a run that has ended in order, as a whole.

    Args:
        machine: The start of the machine whose monotonic clock `at_ns` is of; empty if that is not known.
        at_ns: When the balances were read.
        empty_for_ns: The time since limiters without a balance had empty buckets; None: they were full.
        shared: The levels of limits that were shared in a fleet.
        limiters: The number of limiters with balances.
    """

    machine: str
    at_ns: int
    empty_for_ns: int | None
    shared: tuple[str, ...]
    limiters: int


class _Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line; without `left` it is a mark. `processes`: the number of processes of the proxy in that run."""

    v: int
    proxy_id: str
    run: str
    left: _Left | None = None
    processes: int = 1


_Numbers = tuple[int, int, int]
Balance = tuple[_Numbers, int, _Numbers]
_Line = tuple[str, str, str, str, str, tuple[Balance | None, Balance | None, Balance | None, Balance | None]]


class StateError(Exception):
    """A file cannot be used; the text says why."""


class LimitState:
    """The balances that the run before has left, taken from its file; and the file for those of this run.

    Args:
        folder: The folder of the file, which is made if needed.
        proxy_id: The name of the proxy, and of the file.
        run: A name of this run that no other one has.
        shared: The levels of limits that are shared in a fleet.
        clock: Monotonic nanoseconds.
        processes: The number of processes of the proxy, of which this run is one.

    Raises:
        OSError: If the folder cannot be used, so that no run could ever leave its balances.

    Attributes:
        first: The balances with which this run begins.
        found: The state that was found.
        detail: The same in words, with the remedy where there is one.
    """

    def __init__(
        self,
        folder: Path,
        proxy_id: str,
        run: str,
        shared: Collection[str],
        clock: Callable[[], int],
        processes: int = 1,
    ) -> None:
        self._path = folder / f"{proxy_id}.limits"
        self._proxy_id = proxy_id
        self._run = run
        self._processes = processes
        self._shared = tuple(sorted(shared))
        self._clock = clock
        self._machine = _machine()
        self._before: bytes | None = b""
        """The content of the file before it was taken, empty without one; None once this run serves."""
        self._unmarked = ""
        """The reason for which the file has no mark of this run."""
        self.first = FirstBalances(empty_since=clock())
        self.found: Found = "missing"
        self.detail = "no earlier run of this proxy_id has left balances there"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(self._path):
            self._take()

    def serve(self) -> None:
        """Note that this run serves from now on: it must leave its own balances, and never those that it found."""
        self._before = None

    def take_again(self) -> None:
        """Begin with what the run before has left since, which had not ended; without any, with empty buckets."""
        with _locked(self._path):
            head = _head_of(self._path)
            if head is None or head.run != self._run:
                self._take()
        if self.found != "loaded":
            self.first.empty_at(self._clock())

    def take_back(self) -> None:
        """Put the mark of this run back: a run that was to go on has ended before it served.

        Raises:
            OSError: If the file cannot be written; the next run begins with empty buckets then.
        """
        with _locked(self._path):
            self._put(_sealed([self._encoded(None)]))

    def end(self, limiters: Iterable[Limiter], *, is_awaited: bool = False) -> int | None:
        """Leave the balances of this run; or, if it never served, leave the file as it was found.

        To be called when nothing passes any more. It may be called in a thread.

        Args:
            limiters: All limiters.
            is_awaited: The next run may have taken the file, and serves only when it has seen the end of this one.

        Returns:
            The number of limiters with balances; None if this run never served.

        Raises:
            OSError: If the file cannot be written.
            StateError: If a later run has taken the file. In either case the next run begins with empty buckets.
        """
        count = None
        pieces = [self._before] if self._before else []
        if self._before is None:
            pieces, count = self._pieces(limiters)
        with _locked(self._path):
            head = _head_of(self._path)
            if not is_awaited and (head is None or head.run != self._run):
                if self._unmarked and not self._path.exists():
                    raise StateError(f"when this run began: {self._unmarked}")
                raise StateError("another run of the same proxy_id has begun since, or its file was removed")
            if pieces:
                self._put(pieces)
            else:
                self._path.unlink()
        return count

    def _take(self) -> None:
        """Read the file, and replace it by the mark of this run, so that no other run takes it as well."""
        try:
            self._before = read_file(self._path, MOST_STATE)
            self._load(self._before)
        except FileNotFoundError:
            pass
        except (OSError, StateError) as error:
            self._refuse(str(getattr(error, "strerror", None) or error))
        try:
            self._put(_sealed([self._encoded(None)]))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            # A file that is still there could be taken again, by a run after this one.
            self._path.unlink(missing_ok=True)
            self.first.empty_at(self._clock())
            self._unmarked = f"it cannot be written: {error.strerror}"
            self._refuse(f"{self._unmarked}; make room, or the next run begins empty as well")

    def _refuse(self, why: str) -> None:
        self.found, self.detail = "refused", why

    def _load(self, content: bytes) -> None:
        """Have the run begin with the balances in a file.

        Raises:
            StateError: If there are none, or they cannot be used.
        """
        lines = _unsealed(content)
        head = _head(next(lines))
        if head.v != VERSION:
            raise StateError(f"it is of version {head.v}, and this Sluice reads version {VERSION}")
        if head.proxy_id != self._proxy_id:
            raise StateError(f"it is of another proxy: {head.proxy_id}")
        left = head.left
        if left is None:
            self.found, self.detail = "killed", f"run {head.run} was killed, or has not ended yet"
            return
        if left.shared != self._shared:
            raise StateError("the run before shared other levels of limits in a fleet")
        now = self._clock()
        is_placed = bool(left.machine) and left.machine == self._machine and left.at_ns <= now
        left_at = left.at_ns if is_placed else now
        balances: Left = {scope: (each, left_at) for scope, each in _not_full(lines, left_at, now)}
        self.first.replace(balances, None if left.empty_for_ns is None else left_at - max(0, left.empty_for_ns))
        self.found, self.detail = "loaded", f"of {left.limiters} limiters, left by run {head.run}"

    def _pieces(self, limiters: Iterable[Limiter]) -> tuple[list[bytes], int]:
        """Return the file with the present balances, in pieces, and the number of limiters with balances."""
        now, lines, size, empty_since = self._clock(), list[bytes](), 0, self.first.empty_since
        for scope, balances in self.first.left(limiters, now):
            line = _ENCODER.encode((*scope, tuple(map(written, balances)))) + b"\n"
            size += len(line)
            if size > MOST_STATE - _ROOM:
                empty_since = now
                break
            lines.append(line)
        empty_for = None if empty_since is None else now - empty_since
        left = _Left(self._machine, now, empty_for, self._shared, len(lines))
        return _sealed([self._encoded(left), *lines]), len(lines)

    def _encoded(self, left: _Left | None) -> bytes:
        return _ENCODER.encode(_Head(VERSION, self._proxy_id, self._run, left, self._processes)) + b"\n"

    def _put(self, pieces: Iterable[bytes]) -> None:
        """Replace the file: wholly or not at all, on disk too."""
        with replacing(self._path, _MODE) as file:
            file.writelines(pieces)


def name_of_process(proxy_id: str, index: int) -> str:
    """Return the `proxy_id` of one of several processes."""
    return f"{proxy_id}-{index}"


def retire(folder: Path, proxy_id: str, processes: int) -> list[str]:
    """Remove the balances that a proxy has left under the names of another number of processes.

    With that number again, the proxy would take them for its latest ones, though others have passed messages since.
    Marks stay, as their runs may go on, and so do files of another proxy whose name is that of a process of this one.

    Args:
        folder: The folder of the files.
        proxy_id: The name that is configured.
        processes: The number of processes that begin now.

    Returns:
        The names of the files that are removed.

    Raises:
        OSError: If the folder cannot be used.
    """
    own = {proxy_id} if processes == 1 else {name_of_process(proxy_id, each) for each in range(processes)}
    family, removed = re.compile(rf"({re.escape(proxy_id)}(?:-\d+)?)\.limits"), list[str]()
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        named = family.fullmatch(path.name)
        if named and named[1] not in own:
            with _locked(path):
                head = _head_of(path)
                is_own = head is not None and (named[1] == proxy_id or head.processes > 1)
                if head is not None and head.left is not None and is_own:
                    path.unlink()
                    removed.append(path.name)
    return removed


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other runs from a file while this one reads and replaces it."""
    lock = open_regular(path.with_name(f".{path.name}.lock"), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


_ENCODER = msgspec.json.Encoder()
_HEADS = msgspec.json.Decoder(_Head)
_LINES = msgspec.json.Decoder(_Line)
_ROOM = 4096
"""Bytes for the first line and the digest."""


def _sealed(lines: list[bytes]) -> list[bytes]:
    return [*lines, _digest(lines) + b"\n"]


def _unsealed(content: bytes) -> Iterator[bytes]:
    """Yield the lines of a file, without the digest.

    Raises:
        StateError: If the digest is not that of the lines.
    """
    end = len(content) - 2 * _DIGEST - 1
    if end <= 0 or _digest([content[:end]]) + b"\n" != content[end:]:
        raise StateError("it is torn, or was changed")
    begin = 0
    while begin < end:
        stop = content.index(b"\n", begin)
        yield content[begin:stop]
        begin = stop + 1


def _digest(pieces: Iterable[bytes]) -> bytes:
    digest = blake2b(digest_size=_DIGEST)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest().encode()


def _head(line: bytes) -> _Head:
    try:
        return _HEADS.decode(line)
    except msgspec.DecodeError as error:
        raise StateError(f"its first line cannot be read: {error}") from None


def _head_of(path: Path) -> _Head | None:
    """Return the first line of a file; None if there is no file that can be read."""
    try:
        return _head(next(_unsealed(read_file(path, MOST_STATE))))
    except (OSError, StateError):
        return None


def _not_full(lines: Iterator[bytes], left_at: int, now: int) -> Iterator[tuple[Scope, LeftBalances]]:
    """Yield the balances of buckets that have not filled since."""
    try:
        for line in lines:
            direction, level, name, tenant, namespace, balances = _LINES.decode(line)
            left = tuple(map(read, balances))
            if at(left, left_at, now) is not None:
                yield Scope(direction, intern(level), name, intern(tenant), intern(namespace)), left
    except (msgspec.DecodeError, ValueError) as error:
        raise StateError(f"a line of it cannot be read: {error}") from None


def written(balance: LeftBalance | None) -> Balance | None:
    """Return a balance as files and messages have it."""
    return None if balance is None else (_numbers(balance.rate), balance.parts, _numbers(balance.made_at))


def read(balance: Balance | None) -> LeftBalance | None:
    """Return the balance that was written so."""
    return None if balance is None else LeftBalance(_rate(balance[0]), balance[1], _rate(balance[2]))


@lru_cache(maxsize=1000)
def _rate(numbers: _Numbers) -> Rate:
    """Return a rate; many limiters have the same ones, which take memory once."""
    return Rate(*numbers)


def _numbers(rate: Rate) -> _Numbers:
    return rate.tokens, rate.period_ns, rate.burst


def _machine() -> str:
    """Return a name of this start of the machine; empty where the system has none."""
    try:
        return read_file(_MACHINE, 100).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
