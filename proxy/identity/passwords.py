"""User names with passwords, of a file as Apache's htpasswd writes it.

To check a password takes milliseconds to seconds by design, and anybody may send one. So a thread of its own checks
one after the other (`Checks`), and gives way to all else on this machine. A right one is remembered for a while.

Source: https://httpd.apache.org/docs/2.4/misc/password_encryptions.html
"""

import hashlib
import hmac
import re
import secrets
from codecs import BOM_UTF8
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from typing import Any

from passlib.hash import apr_md5_crypt, bcrypt, ldap_sha1, sha256_crypt, sha512_crypt

from limiter.token_bucket import NANOS_PER_SECOND
from proxy.identity.checks import Checks
from proxy.identity.evidence import is_principal

MOST_USERS = 100_000
LONGEST_PASSWORD = 72
"""Bytes: bcrypt looks at no more, and passwords that are equal up to there would be one."""
MOST_COST = 14
"""Cost of a bcrypt hash: one more doubles the time, and 14 takes about a second."""
_MOST_ROUNDS = 1_000_000
"""Rounds of a SHA-crypt hash: about half a second."""
_MOST_REASONS = 5
"""Lines whose reasons an error names."""
REMEMBERED_NS = 60 * NANOS_PER_SECOND
"""Nanoseconds for which a right password is taken without being checked again."""
MOST_REMEMBERED = 10_000
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
    """A file of passwords cannot be used; `problems` say why, those of a line with its number, and show no hash."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def read_htpasswd(content: bytes, on_unusable: Callable[[str], None] = lambda _: None) -> dict[str, str]:
    """Return the hashes by user, at most MOST_USERS; lines that cannot be used are passed over.

    Of two lines of a user the first holds, even if it cannot be used: it may lock the user out.

    Args:
        content: The file's content.
        on_unusable: Called for each line that is passed over, with its number and the reason.

    Raises:
        PasswordFileError: If no line can be used.
    """
    users: dict[str, str] = {}
    listed = set[str]()
    unusable: list[str] = []
    for at, line in enumerate(map(bytes.strip, content.removeprefix(BOM_UTF8).splitlines()), 1):
        if not line or line.startswith(b"#"):
            continue
        problem: str | None
        try:
            user, _, hashed = line.decode().partition(":")
            if user in listed:
                problem = "this user is listed twice; leave one out"
            elif len(users) == MOST_USERS:
                problem = f"comes after {MOST_USERS} users, the most that are served"
            else:
                problem = _problem(user, hashed)
            listed.add(user)
        except UnicodeDecodeError:
            problem = "is not text in UTF-8"
        if problem:
            unusable.append(f"line {at}: {problem}")
            on_unusable(unusable[-1])
        else:
            users[user] = hashed
    if not users:
        needed = "names no user that can be served; `htpasswd -cB FILE USER` makes one"
        raise PasswordFileError([needed, *unusable[:_MOST_REASONS]])
    return users


def _problem(user: str, hashed: str) -> str | None:
    if not is_principal(user):
        return "write USER:HASH, the user in one line of 1 to 256 characters"
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


OnVerdict = Callable[[PasswordVerdict], None]


class Passwords:
    """Checks passwords, within the bounds that this module's text names.

    Args:
        users: Hashes by user.
        checks: Checks hashes.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, users: Mapping[str, str], checks: Checks, clock: Callable[[], int]) -> None:
        self._users = users
        self._checks = checks
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, int] = OrderedDict()
        """Digests of right passwords and until when, in the order of their ends."""

    def replace_users(self, users: Mapping[str, str]) -> Mapping[str, str]:
        """Check against other hashes from now on, and return those until now; a changed password is forgotten."""
        before, self._users = self._users, users
        return before

    def check(self, user: str, password: bytes, address: str, then: OnVerdict) -> None:
        """Call `then`, now or later, with the verdict on a password.

        Args:
            user: The user name. The password of an unknown user is also checked, and is wrong: the time gives nothing
                away.
            password: As the client sent it.
            address: Where the client is, as limits count it.
            then: Called once.
        """
        if not password or len(password) > LONGEST_PASSWORD:
            then(PasswordVerdict.WRONG)
            return
        hashed = self._users.get(user)
        digest, now = self._digest(user, password, hashed or ""), self._clock()
        if self._knows(self._at(digest, address), now):
            then(PasswordVerdict.RIGHT)
        elif not self._checks.may_try(address):
            then(PasswordVerdict.BUSY)
        elif self._knows(digest, now):
            self._remember(self._at(digest, address))
            then(PasswordVerdict.RIGHT)
        else:
            work = partial(is_right, password, hashed or next(iter(self._users.values())))
            made = partial(self._checked, digest, address, then, is_known=hashed is not None)
            if not self._checks.begin(digest, address, work, made):
                then(PasswordVerdict.BUSY)

    def _digest(self, user: str, password: bytes, hashed: str) -> bytes:
        """Return a digest of all three arguments. With another hash it differs: a changed password is forgotten."""
        parts = [user.encode("utf-8", "surrogateescape"), password, hashed.encode()]
        content = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._secret, content, hashlib.sha256)

    def _at(self, digest: bytes, address: str) -> bytes:
        """Return the digest of a password from this address.

        A client without further guesses may still send its right password, and learns nothing of other addresses'.
        """
        return hmac.digest(self._secret, digest + address.encode(), hashlib.sha256)

    def _knows(self, digest: bytes, now: int) -> bool:
        while self._remembered and next(iter(self._remembered.values())) <= now:
            self._remembered.popitem(last=False)
        return digest in self._remembered

    def _checked(
        self,
        digest: bytes,
        address: str,
        then: OnVerdict,
        is_right: bool | None,  # noqa: FBT001 - as the check returns it
        *,
        is_known: bool,
    ) -> None:
        if is_known and is_right:
            self._remember(digest)
            self._remember(self._at(digest, address))
            then(PasswordVerdict.RIGHT)
        else:
            self._checks.note_wrong(address)
            then(PasswordVerdict.WRONG)

    def _remember(self, digest: bytes) -> None:
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        self._remembered[digest] = self._clock() + REMEMBERED_NS
