"""Passwords: files, hashes, and how few are checked of whoever guesses."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from passlib.hash import apr_md5_crypt, bcrypt, des_crypt, ldap_sha1, sha256_crypt, sha512_crypt

from proxy.identity.checks import MOST_WAITING, MOST_WAITING_OF_ONE, WRONG_ONES, Checks, OneThread
from proxy.identity.passwords import (
    LONGEST_PASSWORD,
    MOST_REMEMBERED,
    REMEMBERED_NS,
    PasswordFileError,
    Passwords,
    PasswordVerdict,
    is_right,
    read_htpasswd,
)
from tests.manual_clock import ManualClock
from tests.waiting import PATIENCE_S

T = TypeVar("T")
HASHES = {
    "bcrypt": bcrypt.using(rounds=4).hash("geheim"),
    "apr1": apr_md5_crypt.hash("geheim"),
    "sha1": ldap_sha1.hash("geheim"),
    "sha256": sha256_crypt.using(rounds=1000).hash("geheim"),
    "sha512": sha512_crypt.using(rounds=1000).hash("geheim"),
}
OF_HTPASSWD = "$2y$05$SoQYRZlKVvSPuYS4fkOGy.3UTFERyt1e8pmN3KXR0MK6IJPuUt8LO"


@pytest.mark.parametrize("kind", HASHES)
def test_each_kind_of_hash_is_right_for_its_password_alone(kind: str) -> None:
    users = read_htpasswd(f"# comment\n\nalice:{HASHES[kind]}\n".encode())
    assert users == {"alice": HASHES[kind]}
    assert is_right(b"geheim", users["alice"])
    for other in (b"Geheim", b"geheim ", b"", b"geheim\0", b"\xff\xfe", b"x" * LONGEST_PASSWORD):
        assert not is_right(other, users["alice"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "names no user"),
        (b"# nobody\n", "names no user"),
        (b"alice:plain\n", "line 1: the hash is of no kind"),
        (f"alice:{des_crypt.hash('geheim')}".encode(), "line 1: the hash is of no kind"),
        (b"alice\n", "line 1: the hash is of no kind"),
        (b"alice:$2y$05$short\n", "line 1: the hash is of no kind"),
        (b"alice:{SHA}!!\n", "line 1: the hash is of no kind"),
        (f":{HASHES['bcrypt']}".encode(), "line 1: write USER:HASH"),
        (f"a:{OF_HTPASSWD.replace('$05$', '$15$')}".encode(), "a bcrypt cost of 15 takes too long; at most 14"),
        (f"a:{HASHES['sha256'].replace('1000', '9000000')}".encode(), "9000000 rounds take too long"),
        (b"\xff:{SHA}x", "line 1: is not text in UTF-8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "it",
)
def test_a_file_that_cannot_be_used_says_which_line_and_shows_no_hash(content: bytes, reason: str) -> None:
    with pytest.raises(PasswordFileError) as refused:
        read_htpasswd(content)
    assert any(reason in problem for problem in refused.value.problems)
    assert "$2" not in str(refused.value)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"bob:plain", "line 2: the hash is of no kind"),
        (b"\xff:{SHA}x", "line 2: is not text in UTF-8"),
        (f"alice:{HASHES['sha1']}".encode(), "line 2: this user is listed twice; leave one out"),
        (f"bob:{OF_HTPASSWD.replace('$05$', '$15$')}".encode(), "line 2: a bcrypt cost of 15 takes too long"),
    ],
    ids=lambda value: value if isinstance(value, str) else "it",
)
def test_unusable_line_is_passed_over_alone(line: bytes, reason: str) -> None:
    reasons: list[str] = []
    first, last = f"alice:{HASHES['apr1']}".encode(), f"carol:{HASHES['sha1']}".encode()
    users = read_htpasswd(b"\xef\xbb\xbf" + b"\r\n".join((first, line, last)), reasons.append)
    assert users == {"alice": HASHES["apr1"], "carol": HASHES["sha1"]}
    (text,) = reasons
    assert text.startswith(reason)


def test_users_after_the_most_that_are_served_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.identity.passwords.MOST_USERS", 2)
    hashed, reasons = HASHES["sha1"], list[str]()
    users = read_htpasswd("".join(f"{name}:{hashed}\n" for name in "abcda").encode(), reasons.append)
    assert list(users) == ["a", "b"]
    assert [reason.partition(",")[0] for reason in reasons] == [
        "line 3: comes after 2 users",
        "line 4: comes after 2 users",
        "line 5: this user is listed twice; leave one out",
    ]


def test_user_whose_first_line_is_unusable_has_no_password() -> None:
    sha1, reasons = HASHES["sha1"], list[str]()
    users = read_htpasswd(f"alice:!locked\nalice:{sha1}\nbob:{sha1}".encode(), reasons.append)
    assert users == {"bob": sha1}
    assert [reason[:29] for reason in reasons] == ["line 1: the hash is of no kin", "line 2: this user is listed t"]


class Pending:
    """A worker that works when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.done = 0

    def __call__(self, work: Callable[[], T], then: Callable[[T | None], None]) -> None:
        self.waiting.append((work, then))

    def go(self) -> None:
        while self.waiting:
            work, then = self.waiting.pop(0)
            self.done += 1
            then(work())


class Desk:
    """Passwords with a clock and a worker moved by hand."""

    def __init__(self) -> None:
        self.clock, self.worker = ManualClock(), Pending()
        self.users = {"alice": HASHES["sha1"], "bob": ldap_sha1.hash("other")}
        self.checks = Checks(self.worker, self.clock)
        self.passwords = Passwords(self.users, self.checks, self.clock)

    def say(self, password: str, user: str = "alice", address: str = "192.0.2.7") -> list[PasswordVerdict]:
        verdicts: list[PasswordVerdict] = []
        self.passwords.check(user, password.encode(), address, verdicts.append)
        return verdicts

    def check(self, password: str, user: str = "alice", address: str = "192.0.2.7") -> PasswordVerdict:
        verdicts = self.say(password, user, address)
        self.worker.go()
        assert len(verdicts) == 1, "each is told once"
        return verdicts[0]


def test_a_right_password_is_checked_once_and_then_remembered_for_a_minute() -> None:
    desk = Desk()
    assert [desk.check("geheim") for _ in range(5)] == [PasswordVerdict.RIGHT] * 5
    assert desk.worker.done == 1
    desk.clock.now += REMEMBERED_NS
    assert desk.check("geheim") is PasswordVerdict.RIGHT
    assert desk.worker.done == 2


def test_nothing_else_is_right_because_one_was() -> None:
    desk = Desk()
    assert desk.check("geheim") is PasswordVerdict.RIGHT
    for password, user in (("geheim", "bob"), ("geheim", "nobody"), ("geheim2", "alice"), ("", "alice"), ("other", "")):
        assert desk.check(password, user, "192.0.2.9") is PasswordVerdict.WRONG


def test_what_one_address_showed_helps_no_other_to_guess() -> None:
    """Else whoever has used up his guesses would learn from `busy` and `right` which password somebody else has."""
    desk = Desk()
    assert desk.check("geheim") is PasswordVerdict.RIGHT
    guesser = "203.0.113.1"
    for number in range(WRONG_ONES.burst):
        assert desk.check(f"guess {number}", address=guesser) is PasswordVerdict.WRONG
    assert desk.say("geheim", address=guesser) == desk.say("another guess", address=guesser) == [PasswordVerdict.BUSY]


def test_a_password_that_was_changed_is_not_remembered() -> None:
    desk = Desk()
    assert desk.check("geheim") is PasswordVerdict.RIGHT
    desk.passwords.replace_users({"alice": ldap_sha1.hash("new")})
    assert desk.check("geheim") is PasswordVerdict.WRONG
    assert desk.check("new") is PasswordVerdict.RIGHT


def test_an_unknown_user_costs_as_much_as_a_known_one() -> None:
    """How long the answer takes tells nobody who there is."""
    desk = Desk()
    for user in ("alice", "nobody"):
        desk.say("wrong", user)
    assert len(desk.worker.waiting) == 2


def test_clients_that_say_the_same_wait_for_one_check() -> None:
    desk = Desk()
    verdicts = [desk.say("geheim", address=f"192.0.2.{number}") for number in range(200)]
    assert len(desk.checks) == len(desk.worker.waiting) == 1
    desk.worker.go()
    assert verdicts == [[PasswordVerdict.RIGHT]] * 200


def test_few_may_wait_and_of_one_address_fewer() -> None:
    desk = Desk()
    for guess in range(100):
        desk.say(f"guess {guess}")
    assert len(desk.checks) == MOST_WAITING_OF_ONE
    for guess in range(1000):
        desk.say(f"guess {guess}", address=f"198.51.100.{guess}")
    assert len(desk.checks) == MOST_WAITING
    assert desk.say("geheim", address="203.0.113.1") == [PasswordVerdict.BUSY]
    desk.worker.go()
    assert len(desk.checks) == 0
    assert desk.check("geheim", address="203.0.113.1") is PasswordVerdict.RIGHT


def test_an_address_that_guesses_has_few_guesses_checked_and_hinders_no_other() -> None:
    desk = Desk()
    assert desk.check("other", "bob") is PasswordVerdict.RIGHT
    verdicts = [desk.check(f"guess {guess}") for guess in range(1000)]
    assert verdicts.count(PasswordVerdict.WRONG) == desk.worker.done - 1 == WRONG_ONES.burst
    assert verdicts.count(PasswordVerdict.BUSY) == 1000 - WRONG_ONES.burst
    assert desk.check("geheim", address="192.0.2.8") is PasswordVerdict.RIGHT
    assert desk.check("other", "bob") is PasswordVerdict.RIGHT, (
        "what it has shown before is remembered, and costs nothing"
    )
    desk.clock.now += 10 * 1_000_000_000
    verdicts = [desk.check(f"another {guess}") for guess in range(1000)]
    assert verdicts.count(PasswordVerdict.WRONG) == WRONG_ONES.burst


def test_a_password_is_at_most_as_long_as_bcrypt_reads_and_longer_ones_cost_nothing() -> None:
    desk = Desk()
    for password in ("", "x" * (LONGEST_PASSWORD + 1), "ü" * LONGEST_PASSWORD):
        assert desk.say(password) == [PasswordVerdict.WRONG]
    assert desk.worker.done == len(desk.checks) == 0


def test_what_is_remembered_is_bounded() -> None:
    desk = Desk()
    passwords = Passwords(
        {f"user {number}": HASHES["sha1"] for number in range(MOST_REMEMBERED + 10)}, desk.checks, desk.clock
    )
    for number in range(MOST_REMEMBERED + 10):
        passwords.check(f"user {number}", b"geheim", "192.0.2.7", lambda _verdict: None)
        desk.worker.go()
    assert len(passwords._remembered) == MOST_REMEMBERED


async def test_the_loop_goes_on_while_a_password_is_checked() -> None:
    worker, answered, may_end = OneThread("passwords"), asyncio.Event(), threading.Event()
    threads: list[str] = []

    def slow() -> bool:
        threads.append(threading.current_thread().name)
        return may_end.wait(10)

    answers: list[bool | None] = []

    def then(is_right: bool | None) -> None:  # noqa: FBT001 - as a worker tells it
        answers.append(is_right)
        answered.set()

    worker(slow, then)
    await asyncio.sleep(0)
    assert not answers, "nobody waited for it"
    may_end.set()
    await asyncio.wait_for(answered.wait(), PATIENCE_S)
    assert answers == [True]
    assert threads == ["passwords"]


async def test_whatever_a_check_raises_proves_nothing() -> None:
    answer = asyncio.get_running_loop().create_future()

    def broken() -> bool:
        raise RuntimeError("a library's mistake")

    OneThread("passwords")(broken, answer.set_result)
    assert await asyncio.wait_for(answer, PATIENCE_S) is None
