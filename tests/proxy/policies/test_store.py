import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from limiter.levels import Setting
from proxy.policies.keys import ActionKind, PolicyKey, PolicyKind, rate_key
from proxy.policies.store import Action, Store, StoredChange, StoreError
from tests.waiting import PATIENCE_S

_TOPIC = rate_key("publish", Setting.TOPIC, "persistent://acme/shop/orders")
_GROUP = PolicyKey(PolicyKind.GROUP, "", "gold")

_WRITER = """
import sys
from pathlib import Path
from limiter.levels import Setting
from proxy.policies.keys import rate_key
from proxy.policies.store import StoredChange, Store

store = Store(Path(sys.argv[1]))
for number in range(1_000_000):
    pair = [StoredChange(rate_key("publish", Setting.TOPIC, name), None, str(number)) for name in ("one", "two")]
    store.write(pair, number, "writer", "here")
    print(number, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "policies.db"


@contextlib.contextmanager
def opened(path: Path | None, audit_rows: int = 100) -> Iterator[Store]:
    store = Store(path, audit_rows)
    try:
        yield store
    finally:
        store.close()


def test_store_without_values_in_words_gets_columns_for_them(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    with contextlib.closing(Store(path)) as store:
        store.write([StoredChange(_TOPIC, None, "1")], 7, "ci", "10.0.0.1")
    with contextlib.closing(sqlite3.connect(path)) as base:
        for column in ("held", "words"):
            base.execute(f"ALTER TABLE audit DROP COLUMN {column}")
    with contextlib.closing(Store(path)) as store:
        store.write([StoredChange(_TOPIC, "1", None, "[]", "taken back")], 8, "ci", "10.0.0.1")
        store.note(Action(ActionKind.KICK, "tenant acme", "ended 3 connections", "acme"), 9, "ann", "")
        kick, *changes = store.audited(9)
    texts = [(each.change.held, each.change.words) for each in changes if isinstance(each.change, StoredChange)]
    assert texts == [("[]", "taken back"), (None, None)]
    assert kick.change == Action(ActionKind.KICK, "tenant acme", "ended 3 connections")


def test_what_was_written_is_there_after_a_restart(path: Path) -> None:
    with opened(path) as store:
        store.write([StoredChange(_TOPIC, None, '{"a":1}'), StoredChange(_GROUP, None, "{}")], 7, "ci", "10.0.0.1")

    with opened(path) as store:
        assert dict(store.policies()) == {_TOPIC: '{"a":1}', _GROUP: "{}"}
        assert store.read(_TOPIC) == '{"a":1}'


def test_what_was_taken_back_is_gone_and_the_audit_log_knows_both(path: Path) -> None:
    with opened(path) as store:
        store.write([StoredChange(_TOPIC, None, "1")], 7, "ci", "10.0.0.1")
        store.write([StoredChange(_TOPIC, "1", None)], 8, "ann", "10.0.0.2")

    with opened(path) as store:
        assert store.read(_TOPIC) is None
        audit_log = [(audited.at_ns, audited.who, audited.address, audited.change) for audited in store.audited(10)]
    assert audit_log == [
        (8, "ann", "10.0.0.2", StoredChange(_TOPIC, "1", None)),
        (7, "ci", "10.0.0.1", StoredChange(_TOPIC, None, "1")),
    ]


def test_the_audit_log_is_bounded() -> None:
    with opened(None, audit_rows=3) as store:
        for number in range(10):
            store.write([StoredChange(_TOPIC, None, str(number))], number, "", "")

        assert [audited.at_ns for audited in store.audited(100)] == [9, 8, 7]


def test_of_a_write_that_fails_nothing_is_left(path: Path) -> None:
    with opened(path) as store:
        store.write([StoredChange(_GROUP, None, "before")], 1, "", "")

        no_text = StoredChange(_GROUP, "x", 1j)  # type: ignore[arg-type]
        with pytest.raises(StoreError, match=r"policies\.store"):
            store.write([StoredChange(_TOPIC, None, "1"), StoredChange(_GROUP, None, None), no_text], 2, "", "")

        assert dict(store.policies()) == {_GROUP: "before"}
        assert len(store.audited(10)) == 1
        store.write([StoredChange(_TOPIC, None, "1")], 3, "", "")
        assert store.read(_TOPIC) == "1"


def test_a_file_belongs_to_one_process(path: Path) -> None:
    with opened(path), pytest.raises(StoreError, match="another process uses it"):
        Store(path)


def test_a_link_to_it_is_no_other_file(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    with opened(path), pytest.raises(StoreError, match="another process uses it"):
        Store(link)
    with opened(link), pytest.raises(StoreError, match="another process uses it"):
        Store(path)


def test_a_link_that_leads_in_circles_cannot_be_opened(path: Path) -> None:
    path.symlink_to(path)
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(path)


def test_a_file_that_is_something_else_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"something else " * 100)

    with pytest.raises(StoreError, match="is not a policy store"):
        Store(path)

    assert path.read_bytes() == b"something else " * 100


def test_a_store_of_another_version_is_refused(path: Path) -> None:
    with opened(path):
        pass
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA user_version = 99")

    with pytest.raises(StoreError, match="reads version 2"):
        Store(path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"gone/policies\.db: cannot be opened"):
        Store(tmp_path / "gone" / "policies.db")


def test_killed_in_the_middle_of_writes_it_has_all_that_was_told_and_no_half(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        last_number = -1
        for line in writer.stdout:
            last_number = int(line)
            if last_number >= 20:
                writer.send_signal(signal.SIGKILL)
                break
        last_number = max([last_number, *(int(line) for line in writer.stdout.read().splitlines())])

    with opened(path) as store:
        kept = {key.name: int(body) for key, body in store.policies()}
    assert kept["one"] == kept["two"], "a transaction is whole"
    assert last_number <= kept["one"] <= last_number + 1


def test_who_reads_does_not_wait_for_who_writes(path: Path) -> None:
    """A disk may take its time; reads are on the event loop."""
    with opened(path) as store:
        store.write([StoredChange(_GROUP, None, "before")], 1, "", "")
        store._base.execute("BEGIN IMMEDIATE")
        store._base.execute("UPDATE policies SET body = 'half'")

        assert store.read(_GROUP) == "before"
        assert dict(store.policies()) == {_GROUP: "before"}

        store._base.execute("ROLLBACK")


class _SlowRows:
    """The rows of the audit log, which come when a test says so."""

    come, asked = threading.Event(), threading.Event()

    def __init__(self, rows: sqlite3.Cursor) -> None:
        self._rows = rows

    def fetchall(self) -> list[Any]:
        self.asked.set()
        assert self.come.wait(PATIENCE_S)
        return self._rows.fetchall()


class _SlowConnection(sqlite3.Connection):
    def execute(self, sql: str, *parameters: Any) -> Any:
        rows = super().execute(sql, *parameters)
        return _SlowRows(rows) if "FROM audit ORDER BY" in sql else rows


@pytest.mark.parametrize("file", ["policies.db", None])
def test_read_of_one_policy_waits_for_no_long_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str | None
) -> None:
    """The one is on the event loop, and ten thousand lines of the audit log take 70 ms."""
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=_SlowConnection))
    _SlowRows.come.clear()
    _SlowRows.asked.clear()
    with opened(tmp_path / file if file else None) as store, ThreadPoolExecutor(2) as threads:
        store.write([StoredChange(_GROUP, None, "before")], 1, "ann", "")
        audited = threads.submit(store.audited, 10)
        try:
            assert _SlowRows.asked.wait(PATIENCE_S)
            store.write([StoredChange(_GROUP, "before", "after")], 2, "ben", "")
            assert threads.submit(store.read, _GROUP).result(PATIENCE_S / 4) == "after"
            assert threads.submit(store.author, _GROUP).result(PATIENCE_S / 4) == "ben"
            assert not audited.done()
        finally:
            _SlowRows.come.set()
        assert audited.result(PATIENCE_S)


def test_reads_are_as_new_as_the_last_change(path: Path) -> None:
    """Although all policies are being read meanwhile: SQLite shows a connection what was there when its reads began."""
    many = [StoredChange(rate_key("publish", Setting.TOPIC, str(number)), None, "5") for number in range(2_000)]
    with opened(path) as store:
        store.write(many, 1, "ann", "")
        policies = store.policies()
        next(policies)
        store.write([StoredChange(_GROUP, None, "new")], 2, "ann", "")
        assert store.read(_GROUP) == "new"
        assert [each.change.after for each in store.audited(1)] == ["new"]  # type: ignore[union-attr]
        assert len([*policies]) >= 1_999


def test_a_store_whose_process_was_killed_can_be_opened_at_once(path: Path) -> None:
    with opened(path) as store:
        store.write([StoredChange(_GROUP, None, "1")], 1, "", "")
    assert path.with_name("policies.db.lock").exists()

    with opened(path) as store:
        assert store.read(_GROUP) == "1"


def test_foreign_sqlite_file_is_refused_and_stays_as_it_is(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE theirs (one TEXT)")
    before = path.read_bytes()

    with pytest.raises(StoreError, match="is not a policy store; name another file"):
        Store(path)

    assert path.read_bytes() == before


def test_what_is_told_as_written_is_on_disk_and_not_only_with_the_operating_system(path: Path) -> None:
    with opened(path) as store:
        assert store._base.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
        assert store._base.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_write_to_a_deleted_or_replaced_file_is_refused(path: Path) -> None:
    """SQLite would go on in what has no name any more, and all of it would end with the process."""
    change = [StoredChange(_TOPIC, None, "5")]
    with opened(path) as store:
        aside = path.rename(path.with_name("aside"))
        with pytest.raises(StoreError, match=r"policies\.db: has been removed or replaced under the running proxy"):
            store.write(change, 1, "ann", "here")
        path.touch()
        with pytest.raises(StoreError, match="replaced"):
            store.write(change, 1, "ann", "here")
        aside.rename(path)
        assert (store.read(_TOPIC), store.audited(9)) == (None, [])
        store.write(change, 2, "ann", "here")
    with opened(path) as store:
        assert store.read(_TOPIC) == "5"


def test_it_is_not_closed_under_who_writes_and_afterwards_says_that_it_is_closed(path: Path) -> None:
    store = Store(path)
    many = [
        StoredChange(rate_key("publish", Setting.TOPIC, f"persistent://a/b/{number}"), None, "5")
        for number in range(9000)
    ]
    writer = threading.Thread(target=store.write, args=(many, 1, "ann", "here"))
    writer.start()
    while not store._in_use["write"].locked() and writer.is_alive():
        pass
    store.close()
    writer.join()
    with opened(path) as again:
        assert len(again.audited(10_000)) == len(list(again.policies())) == len(many)
    for use in (lambda: store.read(_TOPIC), lambda: store.write(many[:1], 1, "", ""), lambda: list(store.policies())):
        with pytest.raises(StoreError, match="is closed"):
            use()


@pytest.mark.parametrize("content", [b"", b"something else " * 100], ids=["empty", "text"])
def test_refused_store_is_named_once_and_leaves_no_lock(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError) as refused:
        Store(path)
    assert str(refused.value).count(str(path)) == 1
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_store_that_is_no_file_is_named_once_and_leaves_no_lock(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(StoreError) as refused:
        Store(path)
    assert str(refused.value).count(str(path)) == 1
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_lock_that_was_there_stays_after_a_failed_start(path: Path) -> None:
    Store(path).close()
    path.write_bytes(b"")
    with pytest.raises(StoreError):
        Store(path)
    assert path.with_name(f"{path.name}.lock").exists()


def test_a_new_store_is_its_owner_s_alone(path: Path) -> None:
    before = os.umask(0o022)
    try:
        with contextlib.closing(Store(path)) as store:
            store.write([StoredChange(rate_key("publish", Setting.TENANT, "acme"), None, "{}")], 1, "ann", "")
            modes = {each.name: each.stat().st_mode & 0o077 for each in path.parent.glob(f"{path.name}*")}
    finally:
        os.umask(before)
    del modes[f"{path.name}.lock"]  # it is empty
    assert (len(modes), set(modes.values())) == (3, {0})
