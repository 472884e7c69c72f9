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
    found = tmp_path / "tokens.yaml"
    found.touch(mode=0o600)
    return found


def tokens(path: Path, content: object) -> Tokens:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return Tokens(path)


def problems(path: Path, content: object) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        tokens(path, content)
    for problem in refused.value.problems:
        assert problem.startswith(f"admin_access.tokens: {path}:")
    return [problem.removeprefix(f"admin_access.tokens: {path}:").strip() for problem in refused.value.problems]


def test_a_token_opens_for_its_holder_and_what_it_is_for(path: Path) -> None:
    found = tokens(path, TWO)
    assert [(holder.name, holder.access) for token in (WRITE, READ) if (holder := found.find(token))] == [
        ("ops", "write"),
        ("prom", "read"),
    ]


@pytest.mark.parametrize("token", ["", "x", WRITE[:-1], WRITE + "x", WRITE.upper(), "ops", "\udcff", "ä" * 16])
def test_nothing_else_opens(path: Path, token: str) -> None:
    assert tokens(path, TWO).find(token) is None


@pytest.mark.parametrize("token", [WRITE, READ, "neither-of-them-"])
def test_all_tokens_are_looked_at_whichever_comes(path: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, compared, real = tokens(path, TWO), [], hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    found.find(token)
    assert compared == [(32, 32)] * 2


def test_no_token_is_kept_as_it_is(path: Path) -> None:
    found = tokens(path, TWO)
    assert WRITE not in repr(vars(found))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "names no holder"),
        ("[]", "names no holder"),
        ({}, "names no holder"),
        ({"a": 3}, "'a': write {access: read, token: TOKEN}, these two keys and no other"),
        ({"a": {"token": WRITE}}, "'a': write {access: read"),
        ({"a": {**TWO["ops"], "role": "x"}}, "'a': write {access: read"),
        ({"a": {"access": "admin", "token": WRITE}}, "'a': access: 'admin': is neither read nor write"),
        ({"a": {"access": [], "token": WRITE}}, "'a': access: '[]': is neither read nor write"),
        ({"a": {"access": "read", "token": "x" * 15}}, "'a': token: write text of 16 to 512 ASCII characters"),
        ({"a": {"access": "read", "token": "x" * 513}}, "'a': token: write text of 16"),
        ({"a": {"access": "read", "token": "x" * 8 + " " + "x" * 8}}, "'a': token: write text of 16"),
        ({"a": {"access": "read", "token": "ä" * 16}}, "'a': token: write text of 16"),
        ({"x" * 102: TWO["ops"]}, f"'{'x' * 100}': write the name as text in one line of 1 to 100 characters"),
        ({"": TWO["ops"]}, "'': write the name as text"),
        ({"x" * 101: TWO["ops"]}, f"'{'x' * 100}': write the name as text"),
        ({"a\nb": TWO["ops"]}, r"'a\nb': write the name as text"),
        ({"anonymous": TWO["ops"]}, "'anonymous': is the name of callers without a token"),
        ({"a": TWO["ops"], "b": TWO["ops"]}, "'b': token: 'a' has the same token; give each holder its own"),
        ({f"n{n}": {"access": "read", "token": f"{n:016}"} for n in range(MOST_TOKENS + 1)}, "names 1001 holders"),
        ("a: {access: read, token: abcdefghijklmnop\nb: 1", "1: the bracket that opens here is not closed"),
        ("a: 1\na: 2", "2: this key stands in line 1, too"),
        ("[" * 5000, "1: sections are nested too deeply"),
        ("x" * 1024**2 + "x", "cannot be read: it has more than 1048576 bytes"),
    ],
)
def test_what_is_wrong_is_told_with_the_holder_and_the_remedy(path: Path, content: object, problem: str) -> None:
    (told,) = problems(path, content)
    assert told.startswith(problem)


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
    with pytest.raises(ConfigError, match=r"^admin_access.tokens: .*/none: cannot be read: No such file or directory$"):
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
