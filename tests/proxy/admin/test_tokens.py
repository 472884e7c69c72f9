"""The file of tokens."""

import hmac
from pathlib import Path

import pytest
import yaml
from structlog.testing import capture_logs

from proxy.admin.auth import MOST_TOKENS, Tokens
from proxy.config.model import ConfigError

WRITE, READ = "write-0123456789", "read-0123456789a"
TWO = {"ops": {"access": "write", "token": WRITE}, "prom": {"access": "read", "token": READ}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.yaml"
    path.touch(mode=0o600)
    return path


def tokens(path: Path, content: object) -> Tokens:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return Tokens(path)


def problems(path: Path, content: object) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        tokens(path, content)
    for problem in refused.value.problems:
        assert problem.startswith(f"admin_access.tokens: {path}:")
    return [problem.removeprefix(f"admin_access.tokens: {path}:").strip() for problem in refused.value.problems]


def passed_over(path: Path, content: object) -> tuple[Tokens, list[str]]:
    with capture_logs() as logs:
        known_tokens = tokens(path, content)
    assert {(line["log_level"], line["key"], line["file"]) for line in logs} <= {
        ("warning", "admin_access.tokens", str(path))
    }
    return known_tokens, [line["reason"] for line in logs]


def test_a_token_opens_for_its_holder_and_what_it_is_for(path: Path) -> None:
    known_tokens = tokens(path, TWO)
    assert [(holder.name, holder.access) for token in (WRITE, READ) if (holder := known_tokens.find(token))] == [
        ("ops", "write"),
        ("prom", "read"),
    ]


@pytest.mark.parametrize("token", ["", "x", WRITE[:-1], WRITE + "x", WRITE.upper(), "ops", "\udcff", "ä" * 16])
def test_nothing_else_opens(path: Path, token: str) -> None:
    assert tokens(path, TWO).find(token) is None


@pytest.mark.parametrize("token", [WRITE, READ, "neither-of-them-"])
def test_all_tokens_are_looked_at_whichever_comes(path: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known_tokens, compared, real = tokens(path, TWO), [], hmac.compare_digest

    def compare(digest: bytes, other: bytes) -> bool:
        compared.append((len(digest), len(other)))
        return real(digest, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    known_tokens.find(token)
    assert compared == [(32, 32)] * 2


def test_no_token_is_kept_as_it_is(path: Path) -> None:
    known_tokens = tokens(path, TWO)
    assert WRITE not in repr(vars(known_tokens))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "names no holder"),
        ("[]", "names no holder"),
        ({}, "names no holder"),
        ({"a": 3}, "1: 'a': write {access: read, token: TOKEN}, these two keys and no other"),
        ({"a": {"token": WRITE}}, "1: 'a': write {access: read"),
        ({"a": {**TWO["ops"], "role": "x"}}, "1: 'a': write {access: read"),
        ({"a": {"access": "admin", "token": WRITE}}, "1: 'a': access: 'admin': is neither read nor write"),
        ({"a": {"access": [], "token": WRITE}}, "1: 'a': access: '[]': is neither read nor write"),
        ({"a": {"access": "read", "token": "x" * 15}}, "1: 'a': token: write text of 16 to 512 ASCII characters"),
        ({"a": {"access": "read", "token": "x" * 513}}, "1: 'a': token: write text of 16"),
        ({"a": {"access": "read", "token": "x" * 8 + " " + "x" * 8}}, "1: 'a': token: write text of 16"),
        ({"a": {"access": "read", "token": "ä" * 16}}, "1: 'a': token: write text of 16"),
        ({"x" * 102: TWO["ops"]}, f"1: '{'x' * 100}': write the name as text in one line of 1 to 100 characters"),
        ({"": TWO["ops"]}, "1: '': write the name as text"),
        ({"x" * 101: TWO["ops"]}, f"1: '{'x' * 100}': write the name as text"),
        ({"a\nb": TWO["ops"]}, r"1: 'a\nb': write the name as text"),
        ({"anonymous": TWO["ops"]}, "1: 'anonymous': is the name of callers without a token"),
        ("a: {access: read, token: abcdefghijklmnop\nb: 1", "1: the bracket that opens here is not closed"),
        ("a: 1\na: 2", "2: this key stands in line 1, too"),
        ("a: {token: 1}\n---\nb: 1", "2: a second document begins here"),
        ("[" * 5000, "1: sections are nested too deeply"),
        ("x" * 1024**2 + "x", "cannot be read: it has more than 1048576 bytes"),
    ],
)
def test_what_is_wrong_is_told_with_the_holder_and_the_remedy(path: Path, content: object, problem: str) -> None:
    (message,) = problems(path, content)
    assert message.startswith(problem)


def test_holders_after_the_most_that_are_served_are_passed_over(path: Path) -> None:
    """A token that was taken out opens nothing, though there are too many others."""
    lines = [f"n{number}: {{access: read, token: token-number-{number:06}}}" for number in range(MOST_TOKENS + 1)]
    known_tokens, logged = passed_over(path, "\n".join(["bad: 3", *lines]))
    assert known_tokens.find(f"token-number-{MOST_TOKENS - 1:06}") is not None
    assert known_tokens.find(f"token-number-{MOST_TOKENS:06}") is None
    assert "1002: 'n1000': comes after 1000 holders" in "".join(logged)


def test_token_of_a_surplus_holder_is_of_neither(path: Path) -> None:
    lines = [f"n{number}: {{access: read, token: token-number-{number:06}}}" for number in range(MOST_TOKENS)]
    known_tokens, _ = passed_over(path, "\n".join([*lines, "last: {access: write, token: token-number-000000}"]))
    assert known_tokens.find("token-number-000000") is None


_ACME = "access: write, token: another-23456789"


@pytest.mark.parametrize(
    "holders",
    [
        f"bad: {{access: read, token: x, tenants: &their ~}}\nacme: {{{_ACME}, tenants: *their}}",
        f"bad: &bad {{access: read, tenants: }}\nacme: {{<<: *bad, {_ACME}}}",
        f"<<: {{acme: {{{_ACME}, tenants: }}}}",
        "\n".join(f"bad{number}:" for number in range(100)) + f"\nacme: {{{_ACME}, tenants: }}",
    ],
    ids=["alias", "merge", "merge-of-holders", "many"],
)
def test_holder_that_loses_its_tenants_is_no_operator(path: Path, holders: str) -> None:
    ops = yaml.safe_dump({"ops": TWO["ops"]})
    assert problems(path, f"{ops}{holders}\n")


@pytest.mark.parametrize(
    ("holders", "reasons"),
    [
        ("bad: 3", ["2: 'bad': write {access: read, token: TOKEN}"]),
        ("bad: {access: reed, token: x}", ["2: 'bad': access: 'reed'", "2: 'bad': token: write text"]),
        ("bad: {access: read, token: }", ["2: nothing is written here"]),
        ("bad: 3\nbad: {access: read, token: another-23456789}", ["3: this key stands in line 2, too"]),
        (
            "bad: {access: read, token: aaaaaaaaaaaaaaaa, token: another-23456789}",
            ["2: this key stands in line 2, too"],
        ),
        (
            f"bad: {{access: read, token: {READ}}}",
            ["2: 'bad': token: 'prom' has the same", "3: 'prom': token: 'bad' has"],
        ),
    ],
)
def test_holder_with_a_mistake_is_passed_over_alone(path: Path, holders: str, reasons: list[str]) -> None:
    good = [yaml.safe_dump({name: TWO[name]}, default_flow_style=True, width=200) for name in TWO]
    ops, prom = (each.strip()[1:-1] for each in good)
    known_tokens, logged = passed_over(path, f"{ops}\n{holders}\n{prom}\n")
    assert known_tokens.find(WRITE) is not None
    assert (known_tokens.find(READ) is None) == ("same token" in "".join(logged)), (
        "a token of two holders is of neither"
    )
    assert known_tokens.find("another-23456789") is None
    assert len(logged) == len(reasons)
    for line, reason in zip(logged, reasons, strict=True):
        assert line.startswith(reason)
        assert "another-" not in line


def test_everything_that_is_wrong_is_told_at_once(path: Path) -> None:
    assert len(problems(path, {"a": 1, "b": {"access": "x", "token": "y"}})) == 3


@pytest.mark.parametrize(
    "content",
    [
        {
            "a": {"access": "all", "token": "hunter2hunter2hunter2"},
            "b": {"access": "x", "token": "hunter2hunter2hunter2"},
        },
        {"a": {"access": "read", "token": "hunter2"}},
        "a: {access: read, token: hunter2hunter2hunter2\nb: hunter2hunter2hunter2",
        "a: {access: read, token: !!int hunter2hunter2hunter2}",
        "a: {access: read, token: hunter2hunter2hunter2, token: hunter2}",
    ],
)
def test_no_error_shows_a_token(path: Path, content: object) -> None:
    assert "hunter2" not in "".join(problems(path, content))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^admin_access.tokens: .*/none: cannot be read: No such file .*; make this file"
    ):
        Tokens(tmp_path / "none")


def test_bytes_that_are_no_text_are_told(path: Path) -> None:
    path.write_bytes(b"\xff\x00\xff")
    with pytest.raises(ConfigError, match="this is no UTF-8"):
        Tokens(path)


def test_a_file_that_others_can_write_is_refused(path: Path) -> None:
    path.chmod(0o602)
    assert problems(path, TWO) == ["others can write it, and so give themselves access: chmod o-w"]


def test_tokens_that_others_can_read_get_a_warning(path: Path) -> None:
    path.chmod(0o644)
    with capture_logs() as logs:
        tokens(path, TWO)
    assert [(line["log_level"], line["key"], line["file"]) for line in logs] == [
        ("warning", "admin_access.tokens", str(path))
    ]


def test_a_file_of_ones_own_gets_none(path: Path) -> None:
    path.chmod(0o640)
    with capture_logs() as logs:
        tokens(path, TWO)
    assert logs == []
