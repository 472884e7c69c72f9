"""A store goes to the next version and back; the next versions are planted, as none is there yet."""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from limiter.levels import Setting
from proxy.policies import store as stores
from proxy.policies.keys import ActionKind, rate_key
from proxy.policies.store import Action, Store, StoredChange, StoreError, check_store, restore

ONE, TWO = (rate_key("publish", Setting.TENANT, name) for name in ("one", "two"))
ADDITIONS = """
ALTER TABLE policies ADD COLUMN unit TEXT NOT NULL DEFAULT 'none';
ALTER TABLE audit ADD COLUMN request TEXT;
ALTER TABLE ahead ADD COLUMN reason TEXT;
CREATE TABLE schedules (name TEXT PRIMARY KEY, hours TEXT NOT NULL);
INSERT INTO schedules VALUES ('night', '22-6');
UPDATE policies SET unit = 'kept';
INSERT INTO audit (at_ns, who, address, kind, setting, name, after, owner, number, request)
VALUES (2, 'ann', '', 'rotate', '', 'keys', 'rotated 3 keys', '', 2, 'r-7');
"""
TO_3 = ("ALTER TABLE policies ADD COLUMN unit TEXT NOT NULL DEFAULT ''", "UPDATE policies SET body = body || ' of 3'")
TO_4 = ("UPDATE policies SET body = body || ' of 4'",)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of this version with one policy."""
    path = tmp_path / "policies.db"
    with closing(Store(path)) as store:
        store.write([StoredChange(ONE, None, "body")], 1, "ann", "")
    return path


def sluice_with(patched: pytest.MonkeyPatch, *steps: Sequence[str]) -> None:
    """Have this process be the Sluice after as many steps from version 2."""
    patched.setattr(stores, "_VERSION", 2 + len(steps))
    patched.setattr(stores, "_STEPS", dict(enumerate(steps, 2)))


def body_in(path: Path) -> str | None:
    with closing(Store(path)) as store:
        return store.read(ONE)


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as base:
        return base.execute(query).fetchall()


def test_additions_of_a_later_version_are_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as base:
        base.executescript(ADDITIONS)
    with closing(Store(path, is_alone=True)) as store:
        assert dict(store.policies()) == {ONE: "body"}
        store.write([StoredChange(ONE, "body", "new"), StoredChange(TWO, None, "2")], 3, "bob", "")
        store.follow_topic()
        store.note(Action(ActionKind.DRAIN, "", "began"), 4, "bob", "")
        audited = [each.change for each in store.audited(9)]
    assert Action("rotate", "keys", "rotated 3 keys") in audited
    assert len(audited) == 5
    assert rows(path, "SELECT name, body, unit FROM policies") == [("one", "new", "kept"), ("two", "2", "none")]
    assert rows(path, "SELECT * FROM schedules") == [("night", "22-6")]
    assert rows(path, "SELECT request FROM audit WHERE kind = 'rotate'") == [("r-7",)]


def test_store_takes_all_steps_and_keeps_a_copy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sluice_with(monkeypatch, TO_3, TO_4)
    assert not check_store(path), "a check changes nothing"
    assert rows(path, "PRAGMA user_version") == [(2,)]
    assert body_in(path) == "body of 3 of 4"
    assert body_in(path) == "body of 3 of 4", "each step is taken once"
    copy = path.with_name("policies.db.v2")
    assert copy.stat().st_mode & 0o777 == 0o600
    assert rows(copy, "SELECT body FROM policies") == [("body",)]
    assert rows(copy, "PRAGMA user_version") == [(2,)]


def test_later_store_is_refused_with_the_way_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        sluice_with(patched, TO_3)
        assert body_in(path) == "body of 3"
    before = path.read_bytes()
    copy = path.with_name("policies.db.v2")
    with pytest.raises(StoreError) as refused:
        Store(path)
    text = str(refused.value)
    assert f"{path}: was written by another version of Sluice: it is of version 3, and this Sluice reads" in text
    assert f"`sluice restore {copy} {path} --replace`" in text
    assert path.read_bytes() == before
    restore(copy, path)
    assert body_in(path) == "body"
    sluice_with(monkeypatch, TO_3)
    assert body_in(path) == "body of 3", "and forward again"


def test_versions_without_a_way_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sluice_with(monkeypatch, TO_3)
    for version in (1, 4, -1):
        with closing(sqlite3.connect(path)) as base:
            base.execute(f"PRAGMA user_version = {version}")
        with pytest.raises(StoreError, match=rf"of version {version}, and this Sluice reads versions 2 to 3; start"):
            Store(path)
    assert not list(path.parent.glob("*.v*"))


def test_step_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        sluice_with(patched, TO_3, ("INSERT INTO nowhere VALUES (1)",))
        with pytest.raises(StoreError, match=r"policies\.db: no such table: nowhere"):
            Store(path)
    assert body_in(path) == "body"


def test_store_without_room_for_its_copy_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = path.with_name("policies.db.v2")
    copy.mkdir()
    with monkeypatch.context() as patched:
        sluice_with(patched, TO_3)
        with pytest.raises(StoreError, match=r"is of version 2, and stays so, .*policies\.db\.v2: it is a directory"):
            Store(path)
    assert body_in(path) == "body"


def test_store_lent_to_a_later_version_comes_back_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Store(path)) as lent:
        lent.lend()
        with monkeypatch.context() as patched:
            sluice_with(patched, TO_3)
            assert body_in(path) == "body of 3"
        lent.take_back(is_as_lent=True)
        assert lent.read(ONE) == "body"
        lent.write([StoredChange(ONE, "body", "new")], 3, "ann", "")


def test_store_that_a_killed_process_still_has_is_awaited(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Store(path)) as lent:
        lent.lend()
        with closing(Store(path)) as later:
            monkeypatch.setattr(time, "sleep", lambda _: later.close())
            lent.take_back(is_as_lent=False)
        assert lent.read(ONE) == "body"


def test_changes_of_a_later_version_are_not_undone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Store(path)) as lent:
        lent.lend()
        with monkeypatch.context() as patched:
            sluice_with(patched, TO_3)
            with closing(Store(path)) as later:
                later.write([StoredChange(TWO, None, "2")], 3, "ann", "")
        with pytest.raises(StoreError, match=r"`sluice restore .*policies\.db\.v2 .* --replace`"):
            lent.take_back(is_as_lent=False)
    assert rows(path, "SELECT body FROM policies WHERE name = 'two'") == [("2",)]
