"""The store of policies that are set at run time: a SQLite file that survives kill -9 at any moment.

A change and its line of the audit log are one transaction, and on disk before anybody is told of success. Without a
file the same is kept in memory, and ends with the process.

Reads have a connection of their own, as one that waits for the disk would let its readers wait too: they read on the
event loop, writes run in a thread. SQLite must not be closed under either.
"""

import errno
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from proxy.files import check_regular, open_regular
from proxy.policies.keys import PolicyKey, PolicyKind

_VERSION = 1
_TABLES = """
CREATE TABLE policies (
    kind TEXT NOT NULL, setting TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (kind, setting, name)
) WITHOUT ROWID;
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, who TEXT NOT NULL, address TEXT NOT NULL,
    kind TEXT NOT NULL, setting TEXT NOT NULL, name TEXT NOT NULL, before TEXT, after TEXT
);
"""
_PATIENCE_S = 2.0
_IN_USE = "another process uses it; give each proxy a file of its own"
_NO_FOLDER = "cannot be opened; its folder must exist and be writable"
_GONE = (
    "has been removed or replaced under the running proxy: put it back; or else `sluice export` what is in force, "
    "restart, and `sluice apply` it"
)
_CLOSED = "is closed: the proxy ends"


class StoreError(Exception):
    """The store cannot be used; the text names file, trouble and remedy."""


@dataclass(frozen=True, slots=True)
class StoredChange:
    """A policy's new body, and the one before; None where there is none."""

    key: PolicyKey
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Audited:
    """A change with its author and time (nanoseconds since 1970)."""

    at_ns: int
    who: str
    address: str
    change: StoredChange


class Store:
    """Policies by key, each as the text in which it was written.

    Args:
        path: The file; it, its `-wal`, `-shm` and `.lock` belong to one process at a time. None: memory.
        audit_rows: Changes that the audit log remembers; older ones go.

    Raises:
        StoreError: If the file cannot be opened, belongs to another process, or is not a store of this version.
    """

    def __init__(self, path: Path | None, audit_rows: int = 100_000) -> None:
        self._path = Path(os.path.realpath(path)) if path else None  # else a link is another name for the lock
        self._audit_rows = audit_rows
        self._opened = ExitStack()
        self._is_open = True
        self._in_use = {"read": threading.Lock(), "write": threading.Lock()}
        self._take_lock()
        try:
            self._base = self._reading = self._connect()
            self._set_up()
            if path is not None:
                self._reading = self._connect()
            self._file = self._file_now()
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise StoreError(self._explain(error)) from None

    def policies(self) -> Iterator[tuple[PolicyKey, str]]:
        """Yield each kept policy.

        Raises:
            StoreError: If it cannot be read.
        """
        with self._using("read"):
            rows = self._reading.execute("SELECT kind, setting, name, body FROM policies")
        while True:
            with self._using("read"):
                read = [
                    (PolicyKey(PolicyKind(kind), setting, name), body)
                    for kind, setting, name, body in rows.fetchmany(1000)
                ]
            if not read:
                return
            yield from read

    def read(self, key: PolicyKey) -> str | None:
        """Return the text that is kept under a key.

        Raises:
            StoreError: If it cannot be read.
        """
        with self._using("read"):
            found = self._reading.execute(
                "SELECT body FROM policies WHERE kind = ? AND setting = ? AND name = ?", _parts(key)
            ).fetchone()
        return found[0] if found else None

    def write(self, changes: Sequence[StoredChange], at_ns: int, who: str, address: str) -> None:
        """Write all changes and their audit lines, or nothing; they are on disk when this returns.

        Raises:
            StoreError: If it cannot be written. Nothing has changed then.
        """
        with self._using("write"):
            self._base.execute("BEGIN IMMEDIATE")
            try:
                self._write(changes, at_ns, who, address)
                self._see_that_it_is_there()
                self._base.execute("COMMIT")
            except BaseException:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise

    def audited(self, most: int) -> list[Audited]:
        """Return the latest changes, newest first.

        Raises:
            StoreError: If it cannot be read.
        """
        with self._using("read"):
            rows = self._reading.execute(
                "SELECT at_ns, who, address, kind, setting, name, before, after FROM audit ORDER BY id DESC LIMIT ?",
                (most,),
            ).fetchall()
        return [
            Audited(at_ns, who, address, StoredChange(PolicyKey(PolicyKind(kind), setting, name), before, after))
            for at_ns, who, address, kind, setting, name, before, after in rows
        ]

    def close(self) -> None:
        """Give the file back, once nobody reads or writes it any more."""
        with self._in_use["read"], self._in_use["write"]:
            self._is_open = False
            self._opened.close()

    @contextmanager
    def _using(self, how: str) -> Iterator[None]:
        """Whatever SQLite says against it is told as the store's trouble."""
        with self._in_use[how]:
            if not self._is_open:
                raise StoreError(self._explain(_CLOSED))
            try:
                yield
            except (sqlite3.Error, OSError, ValueError) as error:
                raise StoreError(self._explain(error)) from None

    def _see_that_it_is_there(self) -> None:
        if self._file_now() != self._file:
            raise sqlite3.OperationalError(_GONE)

    def _file_now(self) -> tuple[int, int] | None:
        """Which file is there under the name: SQLite would go on writing into one that is not any more."""
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _take_lock(self) -> None:
        """Keep other processes out; SQLite's own lock would keep our readers out too."""
        if self._path is None:
            return
        lock_file = self._path.with_name(self._path.name + ".lock")
        try:
            lock = open_regular(lock_file, os.O_WRONLY | os.O_CREAT)
            self._opened.callback(os.close, lock)
            self._check_kinds()
        except OSError as error:
            self.close()
            special = f"{error.filename}: {error.strerror}" if error.errno == errno.EINVAL else _NO_FOLDER
            raise StoreError(self._explain(special)) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise StoreError(self._explain(_IN_USE)) from None

    def _check_kinds(self) -> None:
        """SQLite would wait for the other end of a FIFO, and write into a device."""
        for beside in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                path = Path(f"{self._path}{beside}")
                check_regular(path.stat(), path)

    def _connect(self) -> sqlite3.Connection:
        where = self._path or ":memory:"
        opened = sqlite3.connect(where, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
        return self._opened.enter_context(closing(opened))

    def _set_up(self) -> None:
        version = self._base.execute("PRAGMA user_version").fetchone()[0]
        known = self._base.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if version not in {0, _VERSION} or (version == 0 and known):
            raise sqlite3.DatabaseError(f"it is not a policy store of version {_VERSION}")
        self._base.execute("PRAGMA journal_mode = WAL")
        self._base.execute("PRAGMA synchronous = FULL")
        self._base.execute("BEGIN IMMEDIATE")
        if version == 0:
            for statement in _TABLES.split(";"):
                self._base.execute(statement)
            self._base.execute(f"PRAGMA user_version = {_VERSION}")
        self._base.execute("COMMIT")

    def _write(self, changes: Sequence[StoredChange], at_ns: int, who: str, address: str) -> None:
        for change in changes:
            parts = _parts(change.key)
            if change.after is None:
                self._base.execute("DELETE FROM policies WHERE kind = ? AND setting = ? AND name = ?", parts)
            else:
                self._base.execute("INSERT OR REPLACE INTO policies VALUES (?, ?, ?, ?)", (*parts, change.after))
            self._base.execute(
                "INSERT INTO audit (at_ns, who, address, kind, setting, name, before, after) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (at_ns, who, address, *parts, change.before, change.after),
            )
        self._base.execute("DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?", (self._audit_rows,))

    def _explain(self, error: Exception | str) -> str:
        trouble = str(error)
        if "locked" in trouble:
            trouble = _IN_USE
        elif "unable to open" in trouble:
            trouble = _NO_FOLDER
        elif "not a database" in trouble:
            trouble = "is not a policy store; name another file, or take this one away"
        return f"policies.store: {self._path or 'in memory'}: {trouble}"


def _parts(key: PolicyKey) -> tuple[str, str, str]:
    return key.kind.value, key.setting, key.name
