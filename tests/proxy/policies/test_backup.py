"""Copies of a policy store: made while a proxy writes, put back, and refused where they are not whole."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from limiter.levels import Setting
from proxy.policies.keys import rate_key
from proxy.policies.store import (
    Store,
    StoredChange,
    StoreError,
    left_over,
    read_backup,
    restore,
    spread,
    store_of,
    write_backup,
)
from sluice.cli import app
from tests.proxy.admin_client import Admin
from tests.proxy.policies.test_commands import sluice

_ONE, _TWO = (rate_key("publish", Setting.TOPIC, f"persistent://acme/shop/{name}") for name in ("one", "two"))
_WRITER = """
import sys
from pathlib import Path
from limiter.levels import Setting
from proxy.policies.keys import rate_key
from proxy.policies.store import StoredChange, Store

store = Store(Path(sys.argv[1]))
store.write([StoredChange(rate_key("publish", Setting.TOPIC, "persistent://acme/shop/one"), None, "1")], 1, "ann", "")
print("written", flush=True)
sys.stdin.read()
"""


def kept(path: Path) -> dict[str, str]:
    with closing(Store(path)) as store:
        return {key.name.rpartition("/")[2]: body for key, body in store.policies()}


def content_of(store: Store) -> bytes:
    with store.backup() as made:
        return made.read()


def a_store(path: Path, **bodies: str) -> Path:
    with closing(Store(path)) as store:
        keys = {"one": _ONE, "two": _TWO}
        store.write([StoredChange(keys[name], None, body) for name, body in bodies.items()], 1, "ann", "10.0.0.1")
    return path


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The store of a process that was killed after a change; its `-wal` is still there."""
    path = tmp_path / "policies.db"
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        writer.send_signal(signal.SIGKILL)
    return path


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_a_plain_copy_of_a_store_in_use_has_every_change(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with closing(Store(tmp_path / "policies.db")) as store:
        for number in range(3):
            store.write([StoredChange(_ONE, None, str(number))], number, "ann", "")
            shutil.copyfile(tmp_path / "policies.db", copy)
            assert kept(copy) == {"one": str(number)}


def test_a_copy_without_the_wal_of_a_killed_process_is_whole(killed: Path, tmp_path: Path) -> None:
    assert killed.with_name("policies.db-wal").exists(), "it was not closed"
    shutil.copyfile(killed, tmp_path / "copy.db")
    assert kept(tmp_path / "copy.db") == {"one": "1"}


def test_an_empty_file_is_no_new_store(tmp_path: Path) -> None:
    path = tmp_path / "policies.db"
    path.touch()
    with pytest.raises(StoreError, match=r"policies\.db: is empty, .*`sluice restore`"):
        Store(path)
    assert path.stat().st_size == 0


def test_a_store_without_tables_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policies.db"
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("CREATE TABLE passing (one TEXT)")
        base.execute("DROP TABLE passing")
    with pytest.raises(StoreError, match="has no policies' tables"):
        Store(path)


@pytest.mark.parametrize("left", [0.95, 0.5, 0.1])
def test_a_truncated_store_is_refused_with_the_remedy(tmp_path: Path, left: float) -> None:
    path = tmp_path / "policies.db"
    with closing(Store(path)) as store:
        changes = [StoredChange(rate_key("publish", Setting.TOPIC, str(n)), None, "x" * 100) for n in range(1000)]
        store.write(changes, 1, "ann", "")
    os.truncate(path, int(path.stat().st_size * left))
    with pytest.raises(StoreError, match=r"is damaged: .*sluice restore"):
        Store(path)


def test_a_damaged_page_is_found_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "policies.db"
    with closing(Store(path)) as store:
        changes = [StoredChange(rate_key("publish", Setting.TOPIC, str(n)), None, "x" * 100) for n in range(1000)]
        store.write(changes, 1, "ann", "")
    content = bytearray(path.read_bytes())
    content[-4096 * 3 : -4096 * 2] = b"\xff" * 4096
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"):
        Store(path)


def test_a_store_of_a_later_version_names_both_versions(tmp_path: Path) -> None:
    path = a_store(tmp_path / "policies.db", one="1")
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="it is of version 99, and this Sluice reads version 2"):
        Store(path)


def test_a_wal_whose_store_is_gone_is_not_laid_over_a_new_one(killed: Path) -> None:
    killed.unlink()
    with pytest.raises(StoreError, match=r"is not there, but policies\.db-wal, which belongs to it, is"):
        Store(killed)


def test_a_store_half_made_by_a_killed_process_is_made_again(tmp_path: Path) -> None:
    (tmp_path / ".policies.db.new").write_bytes(b"half")
    with closing(Store(tmp_path / "policies.db")) as store:
        assert store.is_new
    assert not (tmp_path / ".policies.db.new").exists()


def test_a_backup_has_all_of_one_moment_and_the_audit_log(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "policies.db")) as store:
        store.write([StoredChange(_ONE, None, "1")], 7, "ann", "10.0.0.1")
        store._base.execute("BEGIN IMMEDIATE")
        store._base.execute("UPDATE policies SET body = 'half'")
        counts = write_backup(tmp_path / "backup", content_of(store))
        store._base.execute("ROLLBACK")
    assert (counts.policies, counts.changes) == (1, 1)
    with closing(Store(tmp_path / "backup")) as copy:
        assert (copy.read(_ONE), copy.author(_ONE), copy.audited(9)[0].who) == ("1", "ann", "ann")


@pytest.mark.parametrize("name", ["policies.db", None])
def test_a_backup_is_never_whole_in_memory(tmp_path: Path, name: str | None) -> None:
    with closing(Store(tmp_path / name if name else None)) as store:
        changes = [StoredChange(rate_key("publish", Setting.TOPIC, str(n)), None, "x" * 1000) for n in range(1000)]
        store.write(changes, 1, "ann", "")
        tracemalloc.start()
        with store.backup() as made:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert os.fstat(made.fileno()).st_size > 1_000_000 > 10 * peak


def test_a_backup_removes_the_remains_of_a_killed_one(tmp_path: Path) -> None:
    (tmp_path / ".policies.db-backup-killed").mkdir()
    with closing(Store(tmp_path / "policies.db")) as store, store.backup():
        assert not [*tmp_path.glob(".*")]


async def test_a_backup_of_many_pieces_is_sent_whole(make_admin, tmp_path: Path) -> None:
    with closing(Store(tmp_path / "policies.db")) as store:
        store.write([StoredChange(_ONE, "x" * 300_000, None)], 7, "ann", "10.0.0.1")
    admin: Admin = await make_admin(policies={"store": tmp_path / "policies.db"})
    done = await sluice(admin, "backup", tmp_path / "backup")
    assert done.stdout.endswith(": 0 policies, 1 changes of the audit log\n")
    with closing(Store(tmp_path / "backup")) as copy:
        assert copy.audited(1)[0].change == StoredChange(_ONE, "x" * 300_000, None)


def test_what_is_in_memory_alone_can_be_saved(tmp_path: Path) -> None:
    with closing(Store(None)) as store:
        store.write([StoredChange(_ONE, None, "1")], 7, "ann", "10.0.0.1")
        write_backup(tmp_path / "backup", content_of(store))
    assert kept(tmp_path / "backup") == {"one": "1"}


def test_a_backup_that_is_not_whole_replaces_no_other(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    path.write_bytes(b"the one before")
    with pytest.raises(StoreError):
        write_backup(path, b"no store")
    assert path.read_bytes() == b"the one before"
    assert [*tmp_path.iterdir()] == [path]


def test_a_backup_does_not_replace_a_store_in_use(tmp_path: Path) -> None:
    path, link = tmp_path / "policies.db", tmp_path / "link"
    link.symlink_to(path)
    with closing(Store(path)) as store:
        for target in (path, link):
            with pytest.raises(StoreError, match="the store of a process that runs; name another file"):
                write_backup(target, content_of(store))
        store.write([StoredChange(_ONE, None, "1")], 1, "ann", "")
    assert kept(path) == {"one": "1"}


def test_a_backup_replaces_nothing_but_a_regular_file(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with closing(Store(None)) as store, pytest.raises(StoreError, match="it is a FIFO; only regular files"):
        write_backup(path, content_of(store))
    assert path.is_fifo()


def test_a_backup_follows_a_link_to_a_file(tmp_path: Path) -> None:
    path, link = tmp_path / "backup", tmp_path / "link"
    path.touch()
    link.symlink_to(path)
    with closing(Store(None)) as store:
        write_backup(link, content_of(store))
    assert link.is_symlink()
    assert kept(path) == {}


def test_a_restored_store_has_nothing_of_the_one_before(killed: Path, tmp_path: Path) -> None:
    backup = a_store(tmp_path / "backup", two="2")
    assert restore(backup, killed).policies == 1
    assert kept(killed) == {"two": "2"}


def test_a_new_store_can_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    restore(a_store(tmp_path / "backup", two="2"), tmp_path / "policies.db")
    assert (tmp_path / "policies.db").stat().st_mode & 0o777 == 0o600


def test_a_store_in_use_is_not_replaced(tmp_path: Path) -> None:
    backup, path = a_store(tmp_path / "backup", two="2"), tmp_path / "policies.db"
    with closing(Store(path)), pytest.raises(StoreError, match="another process uses it"):
        restore(backup, path)


def test_a_damaged_backup_replaces_nothing(tmp_path: Path) -> None:
    path = a_store(tmp_path / "policies.db", one="1")
    (tmp_path / "backup").touch()
    with pytest.raises(StoreError, match="backup: is empty"):
        restore(tmp_path / "backup", path)
    assert kept(path) == {"one": "1"}


def test_the_store_of_a_running_proxy_can_be_read_itself(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "policies.db")) as store:
        store.write([StoredChange(_ONE, None, "1")], 1, "ann", "")
        write_backup(tmp_path / "backup", read_backup(tmp_path / "policies.db"))
    assert kept(tmp_path / "backup") == {"one": "1"}


async def test_a_running_proxy_is_asked_for_a_backup(make_admin, tmp_path: Path) -> None:
    admin: Admin = await make_admin()
    await admin.ask("POST", "/admin/v2/namespaces/acme/shop/publishRate", json={"publishThrottlingRateInMsg": 5})
    await admin.ask("POST", "/sluice/blocks", json={"kind": "role", "name": "billing"})
    result = await sluice(admin, "backup", tmp_path / "backup")
    assert result.stdout == f"{tmp_path}/backup: 2 policies, 2 changes of the audit log\n"
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    done = command("restore", tmp_path / "backup", tmp_path / "policies.db")
    assert (done.exit_code, done.stdout) == (
        0,
        f"{tmp_path}/policies.db: 2 policies, 2 changes of the audit log\n",
    )
    other: Admin = await make_admin(policies={"store": tmp_path / "policies.db"})
    _, body = await other.ask("GET", "/admin/v2/namespaces/acme/shop/publishRate")
    assert body["publishThrottlingRateInMsg"] == 5
    assert [rule.key.name for rule in other.engine.blocklist.rules.all()] == ["billing"]


async def test_a_read_only_tenant_gets_no_backup(make_admin, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("acme: {access: read, token: acme-acme-acme-acme, tenants: [acme]}")
    admin: Admin = await make_admin(admin_access={"tokens": tokens})
    status, _ = await admin.ask("GET", "/sluice/backup", headers={"Authorization": "Bearer acme-acme-acme-acme"})
    assert status == 403


def test_a_store_that_is_there_is_replaced_on_request_only(tmp_path: Path) -> None:
    backup, path = a_store(tmp_path / "backup", two="2"), a_store(tmp_path / "policies.db", one="1")
    refused = command("restore", backup, path)
    assert (refused.exit_code, "--replace" in refused.stderr) == (1, True)
    assert command("restore", backup, path, "--replace").exit_code == 0
    assert kept(path) == {"two": "2"}


def test_an_error_names_the_file_and_ends_with_1(tmp_path: Path) -> None:
    done = command("backup", tmp_path / "backup", "--store", tmp_path / "gone.db")
    assert (done.exit_code, "gone.db" in done.stderr) == (1, True)
    assert not (tmp_path / "gone.db").exists()


def test_processes_begin_with_the_store_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    assert spread(path, 2, is_carried=True) == [], "a start makes it"
    a_store(path, one="5")
    a_store(store_of(path, 1), two="6")
    assert spread(path, 3, is_carried=True) == [store_of(path, 1), store_of(path, 2)]
    assert kept(store_of(path, 1)) == kept(store_of(path, 2)) == {"one": "5"}


def test_processes_without_a_topic_keep_what_is_their_own(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    a_store(path, one="5")
    a_store(store_of(path, 1), two="6")
    assert spread(path, 2, is_carried=False) == []
    with closing(Store(path, is_alone=True)) as alone:
        alone.write([StoredChange(_TWO, None, "7")], 2, "ann", "")
    assert spread(path, 2, is_carried=False) == [store_of(path, 1)]
    assert kept(store_of(path, 1)) == {"one": "5", "two": "7"}
    assert spread(path, 2, is_carried=False) == [], "they have their own from now on"


def test_store_of_a_process_that_runs_is_not_copied_over(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    a_store(path, one="5")
    with closing(Store(store_of(path, 1))), pytest.raises(StoreError, match="another process uses it"):
        spread(path, 2, is_carried=True)


def test_store_is_not_made_beside_that_of_a_further_process(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    a_store(tmp_path / "p-1.db", one="5")
    a_store(tmp_path / "p-x.db")
    with pytest.raises(StoreError, match=r"p\.db: is not there, but p-1\.db is, .* `sluice restore"):
        Store(path)
    assert not path.exists()
    assert command("restore", tmp_path / "p-1.db", path).exit_code == 0
    assert kept(path) == {"one": "5"}
    for name in ("p.db", "p-1.db"):
        (tmp_path / name).unlink()
    assert Store(path).is_new


def test_restore_of_a_further_process_s_store_warns(tmp_path: Path) -> None:
    backup, first = a_store(tmp_path / "b.db", one="5"), tmp_path / "p.db"
    assert command("restore", backup, first).stderr == ""
    assert f"makes it a copy of {first}" in command("restore", backup, tmp_path / "p-1.db").stderr
    assert command("restore", backup, tmp_path / "q-1.db").stderr == ""


def test_policies_that_no_process_has_any_more_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    a_store(path, one="5")
    a_store(tmp_path / "p-1.db", one="6", two="6")
    assert left_over(path, 2) == []
    (warning,) = left_over(path, 1)
    assert warning.startswith(f"policies.store: {tmp_path}/p-1.db: has 1 policies that {path} never had")
    with closing(Store(path)) as store:
        store.write([StoredChange(_TWO, None, "7")], 2, "ann", "")
        store.write([StoredChange(_TWO, "7", None)], 3, "ann", "")
    assert left_over(path, 1) == [], "it was taken back since"


def test_restored_store_holds_over_its_topic(tmp_path: Path) -> None:
    path, backup = a_store(tmp_path / "p.db", one="5"), tmp_path / "b.db"
    assert command("backup", backup, "--store", path).exit_code == 0
    assert command("restore", backup, path, "--replace").exit_code == 0
    with closing(Store(path)) as store:
        assert store.ahead_ns is not None
        store.follow_topic()
    with closing(Store(path)) as store:
        assert store.ahead_ns is None
