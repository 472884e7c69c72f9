"""User names with passwords, of a file as Apache's htpasswd writes it.

To check a password takes milliseconds to seconds by design, and anybody may send one. So a thread of its own checks
one after the other, and gives way to all else on this machine. A right one is remembered for a while. Few may wait, of
one address still fewer, and an address that sends wrong ones has few of them checked.

Source: https://httpd.apache.org/docs/2.4/misc/password_encryptions.html
"""

import asyncio
import hashlib
import hmac
import os
import re
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

from passlib.hash import apr_md5_crypt, bcrypt, ldap_sha1, sha256_crypt, sha512_crypt

from limiter.admission import Buckets, KeyedBuckets
from limiter.token_bucket import NANOS_PER_SECOND, Rate
from proxy.identity.evidence import is_principal

MOST_USERS = 100_000
LONGEST_PASSWORD = 72
"""Bytes: bcrypt looks at no more, and passwords that are equal up to there would be one."""
MOST_COST = 14
"""Cost of a bcrypt hash: one more doubles the time, and 14 takes about a second."""
_MOST_ROUNDS = 1_000_000
"""Rounds of a SHA-crypt hash: about half a second."""
REMEMBERED_NS = 60 * NANOS_PER_SECOND
"""Nanoseconds for which a right password is taken without being checked again."""
MOST_REMEMBERED = 10_000
MOST_WAITING = 64
"""Passwords that wait to be checked."""
MOST_WAITING_OF_ONE = 16
"""Passwords of one address that wait to be checked, at most."""
WRONG_ONES = Rate(1, NANOS_PER_SECOND, 10)
"""Wrong passwords of one address (IPv6: of its /64)."""
_MOST_ADDRESSES = 10_000
_NICENESS = 10
_ROUNDS = re.compile(r"\$[56]\$rounds=([0-9]+)\$")
_HANDLERS: Mapping[str, Any] = {
    "$2y$": bcrypt,
    "$2b$": bcrypt,
    "$2a$": bcrypt,
    "$apr1$": apr_md5_crypt,
    "{SHA}": ldap_sha1,
    "$5$": sha256_crypt,
    "$6$": sha512_crypt,
}
"""Handlers of hashes, by how these begin. Plain text and crypt(3), whose passwords end at 8 characters, have none."""


class PasswordFileError(Exception):
    """A file of passwords cannot be used; `problems` say why, each with its line, and show no hash."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def read_htpasswd(content: bytes) -> dict[str, str]:
    """Return the hashes by user.

    Raises:
        PasswordFileError: With every line that cannot be used.
    """
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise PasswordFileError(["is not text in UTF-8"]) from None
    users: dict[str, str] = {}
    problems: list[str] = []
    for at, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        user, _, hashed = line.partition(":")
        problem = _problem(user, hashed, users)
        if problem:
            problems.append(f"line {at}: {problem}")
        users[user] = hashed
    if not users:
        problems.append("names nobody; `htpasswd -cB FILE USER` makes one")
    if len(users) > MOST_USERS:
        problems.append(f"names {len(users)} users, at most {MOST_USERS} are served")
    if problems:
        raise PasswordFileError(problems)
    return users


def _problem(user: str, hashed: str, users: Mapping[str, str]) -> str | None:
    if not is_principal(user):
        return "write USER:HASH, the user in one line of 1 to 256 characters"
    if user in users:
        return "this user stands there twice"
    handler = _handler(hashed)
    if handler is None:
        return "the hash is of no kind that is served: `htpasswd -B` (bcrypt), `-m` (apr1), `-s`, `-2`, `-5` make them"
    if handler is bcrypt and int(hashed[4:6]) > MOST_COST:
        return f"a bcrypt cost of {int(hashed[4:6])} takes too long; at most {MOST_COST} (`htpasswd -B -C 12`)"
    rounds = _ROUNDS.match(hashed)
    if rounds and int(rounds[1]) > _MOST_ROUNDS:
        return f"{rounds[1]} rounds take too long; at most {_MOST_ROUNDS} (`htpasswd -5 -r 100000`)"
    return None


def _handler(hashed: str) -> Any | None:
    handler = next((handler for begin, handler in _HANDLERS.items() if hashed.startswith(begin)), None)
    try:
        if handler is not None:
            handler.from_string(hashed)
    except (ValueError, TypeError):
        return None
    return handler


def is_right(password: bytes, hashed: str) -> bool:
    """Return whether a hash that `read_htpasswd` has read is of this password. It may take a second."""
    handler = _handler(hashed)
    try:
        return handler is not None and bool(handler.verify(password, hashed))
    except ValueError:  # a NUL in it
        return False


class PasswordVerdict(Enum):
    """The result of a check of a password, or that it is under way."""

    RIGHT = auto()
    WRONG = auto()
    BUSY = auto()
    """The password was not checked: too many wait, or the address has sent too many wrong ones."""


class PasswordWorker(Protocol):
    """Runs password checks elsewhere, one after the other."""

    def __call__(self, work: Callable[[], bool], then: Callable[[bool], None]) -> None:
        """Call `then` with what `work` returns, in the event loop."""


OnVerdict = Callable[[PasswordVerdict], None]


class Passwords:
    """Checks passwords, within the bounds that this module's text names.

    Args:
        users: Hashes by user.
        worker: Checks hashes.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, users: Mapping[str, str], worker: PasswordWorker, clock: Callable[[], int]) -> None:
        self.users = users
        self._worker = worker
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, int] = OrderedDict()
        """Digests of right passwords and until when, in the order of their ends."""
        self._waiting: dict[bytes, list[OnVerdict]] = {}
        self._waiting_of: Counter[str] = Counter()
        self._wrong = KeyedBuckets(WRONG_ONES, Buckets(_MOST_ADDRESSES))

    @property
    def waiting(self) -> int:
        """Passwords that wait to be checked."""
        return len(self._waiting)

    def check(self, user: str, password: bytes, address: str, then: OnVerdict) -> None:
        """Call `then`, now or later, with what is known of a password.

        Args:
            user: The user name. The password of an unknown user is checked, too, and is wrong: the time tells nothing.
            password: As the client sent it.
            address: Where the client is, as limits count it.
            then: Called once.
        """
        if not password or len(password) > LONGEST_PASSWORD:
            then(PasswordVerdict.WRONG)
            return
        hashed = self.users.get(user)
        digest, now = self._digest(user, password, hashed or ""), self._clock()
        if self._knows(self._at(digest, address), now):
            then(PasswordVerdict.RIGHT)
        elif not self._wrong.admits(address, now):
            then(PasswordVerdict.BUSY)
        elif self._knows(digest, now):
            self._remember(self._at(digest, address))
            then(PasswordVerdict.RIGHT)
        elif digest in self._waiting:
            self._waiting[digest].append(then)
        elif self._has_room(address):
            self._begin(digest, address, then)
            work = partial(is_right, password, hashed or next(iter(self.users.values())))
            self._worker(work, partial(self._checked, digest, address, hashed is not None))
        else:
            then(PasswordVerdict.BUSY)

    def _digest(self, user: str, password: bytes, hashed: str) -> bytes:
        """Return a digest of all three arguments. With another hash it differs: a changed password is forgotten."""
        parts = [user.encode("utf-8", "surrogateescape"), password, hashed.encode()]
        said = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._secret, said, hashlib.sha256)

    def _at(self, digest: bytes, address: str) -> bytes:
        """Return the digest of what this address has shown.

        Who has used up his guesses may show again what was right, and learns nothing of what others have shown.
        """
        return hmac.digest(self._secret, digest + address.encode(), hashlib.sha256)

    def _knows(self, digest: bytes, now: int) -> bool:
        while self._remembered and next(iter(self._remembered.values())) <= now:
            self._remembered.popitem(last=False)
        return digest in self._remembered

    def _has_room(self, address: str) -> bool:
        return len(self._waiting) < MOST_WAITING and self._waiting_of[address] < MOST_WAITING_OF_ONE

    def _begin(self, digest: bytes, address: str, then: OnVerdict) -> None:
        self._waiting[digest] = [then]
        self._waiting_of[address] += 1

    def _checked(self, digest: bytes, address: str, is_known: bool, is_right: bool) -> None:  # noqa: FBT001 - two facts
        told = self._waiting.pop(digest)
        self._waiting_of[address] -= 1
        if not self._waiting_of[address]:
            del self._waiting_of[address]
        if is_known and is_right:
            self._remember(digest)
            self._remember(self._at(digest, address))
        else:
            self._wrong.take(address, self._clock())
        for then in told:
            then(PasswordVerdict.RIGHT if is_known and is_right else PasswordVerdict.WRONG)

    def _remember(self, digest: bytes) -> None:
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        self._remembered[digest] = self._clock() + REMEMBERED_NS


class OneThread:
    """A thread that works for an event loop, with less right to the processor than the loop itself.

    It begins with the first work, and ends with the process, whatever it is about.
    """

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Callable[..., object], Callable[[], bool], Callable[[bool], None]]] = (
            SimpleQueue()
        )
        self._is_begun = False

    def __call__(self, work: Callable[[], bool], then: Callable[[bool], None]) -> None:
        """Work in the thread, and call `then` in the running loop."""
        if not self._is_begun:
            self._is_begun = True
            threading.Thread(target=self._run, name="passwords", daemon=True).start()
        self._work.put((asyncio.get_running_loop().call_soon_threadsafe, work, then))

    def _run(self) -> None:
        with suppress(OSError, AttributeError):  # Linux has a niceness for each thread
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while True:
            soon, work, then = self._work.get()
            try:
                found = work()
            except Exception:  # noqa: BLE001 - whatever a library does with a password: it proves nothing
                found = False
            with suppress(RuntimeError):  # the loop has ended
                soon(then, found)
