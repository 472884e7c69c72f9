"""The store of policies that are set at run time: a SQLite file that survives kill -9 at any moment.

A change and its line of the audit log are one transaction, and on disk before its caller gets an answer. Each change
is then in the file itself, and not in its `-wal` alone, so that a plain copy of the file is whole. Without a file the
policies are kept in memory, and end with the process.

A file that is there must be a store. An empty one is a copy that went wrong: a proxy would serve without limits.

Reads of one policy have a connection of their own: they run on the event loop, and must not wait for writes, which wait
for the disk in a thread, or for long reads. Reads of all policies have a third connection, and those of the audit log a
fourth: SQLite hides the changes since a read began from all reads of its connection. None must be closed while it is
used.

A store has a version (`PRAGMA user_version`), which only a step raises that earlier Sluices cannot read:

    of this version      opened
    of an earlier one    a copy is kept beside it (`NAME.vVERSION`), then all steps are one transaction
    of a later one       refused: the error names the copy, by which one goes back

An addition is no step: a table, a column with a default, an action in the audit log. The Sluice that adds makes it
where it is missing (`Store._set_up`); others name the columns that they write, and leave alone what they do not know.
"""

import errno
import fcntl
import glob
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import structlog

from proxy.files import check_regular, open_regular, replacing
from proxy.policies.keys import BLOCKS, OF_TENANTS, OPERATOR, PolicyKey, PolicyKind, owner_of
from proxy.policies.room import Room, TenantShare, size_of

_VERSION = 2
_STEPS: Mapping[int, Sequence[str]] = {}
"""The statements that make a store of each earlier version one of the next."""
_APPLICATION = int.from_bytes(b"SLUC")
"""The application id in the header of the file."""
_AHEAD = "CREATE TABLE IF NOT EXISTS ahead (at_ns INTEGER NOT NULL);"
"""Has one row while the store has changes that no topic has carried: the time of the last one."""
_TABLES = f"""
CREATE TABLE policies (
    kind TEXT NOT NULL, setting TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, who TEXT NOT NULL,
    PRIMARY KEY (kind, setting, name)
) WITHOUT ROWID;
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, who TEXT NOT NULL, address TEXT NOT NULL,
    kind TEXT NOT NULL, setting TEXT NOT NULL, name TEXT NOT NULL, before TEXT, after TEXT,
    owner TEXT NOT NULL, number INTEGER NOT NULL, held TEXT, words TEXT
);
CREATE INDEX audit_by_owner ON audit (owner, number);
{_AHEAD}
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
"""
_LAST_OF_OWNER = "(SELECT max(number) FROM audit WHERE owner = ?)"
_PATIENCE_S = 2.0
_RELEASE_S, _LOOK_S = 5.0, 0.01
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the files made there are in a folder of their own
_PAGES_IN_A_STEP = 100
"""Pages of 4 KiB that SQLite copies in a fraction of a millisecond."""
_OF_OTHERS = "is not a policy store; name another file, or take this one away"
_RESTORE = "put a backup in its place (`sluice restore`), or remove it to begin without policies"
_IN_USE = "another process uses it; give each proxy a file of its own"
_NO_FOLDER = "cannot be opened; its folder must exist and be writable"
_GONE = (
    "has been removed or replaced under the running proxy: put it back; or else `sluice export` what is in force, "
    "restart, and `sluice apply` it"
)
_CLOSED = "is closed: the proxy ends"
_LENT = "is with the process that takes over from this one; try again"


class StoreError(Exception):
    """The store cannot be used; the text names file, trouble and remedy."""


@dataclass(frozen=True, slots=True)
class StoredChange:
    """A policy's new body, and the one before; None where there is none.

    Args:
        key: The key of the policy.
        before: The body that was kept before.
        after: The body that is kept now.
        held: What was in force before, whatever its source, as `proxy.policies.held` writes it; None: not known.
        words: The new value in words, as `proxy.policies.held` writes it; None: not known.
    """

    key: PolicyKey
    before: str | None
    after: str | None
    held: str | None = field(default=None, compare=False)
    words: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Action:
    """An action of an operator that changes no policy, for the audit log.

    Args:
        kind: The kind of action, an `ActionKind`; or that of a later Sluice, from the audit log.
        name: Its object; empty if it has none.
        effect: What it did, in words.
        owner: The owner of the line of the audit log, see `owner_of`.
    """

    kind: str
    name: str
    effect: str
    owner: str = OPERATOR


def differences(changes: Iterable[StoredChange]) -> dict[str, tuple[int, int]]:
    """Return the policies and bytes that changes add to each owner's part."""
    added = dict[str, tuple[int, int]]()
    for change in changes:
        sizes = [0 if body is None else size_of(change.key.name, body) for body in (change.before, change.after)]
        policies, size = added.get(owner_of(change.key), (0, 0))
        more = (change.after is not None) - (change.before is not None)
        added[owner_of(change.key)] = policies + more, size + sizes[1] - sizes[0]
    return added


@dataclass(frozen=True, slots=True)
class Audited:
    """A change or an action with its author and time (nanoseconds since 1970)."""

    at_ns: int
    who: str
    address: str
    change: StoredChange | Action


_MODE = 0o600
"""The mode of the store and its backups, whatever the umask: the audit log has names and addresses of callers."""


class Store:
    """Policies by key, each as the text in which it was written.

    Args:
        path: The file; it, its `-wal`, `-shm` and `.lock` belong to one process at a time. None: memory.
        audit_rows: Changes that the audit log keeps, and a hundredth of that for each tenant; older ones go.
        share: The part of each tenant.
        is_alone: Whether changes are this store's own: no topic carries them, and no other process has them.

    Attributes:
        is_new: Whether the file was not there before.
        ahead_ns: The time of the last change that no topic has carried, nanoseconds since 1970; None: there is none.
        room: Counts the kept policies.

    Raises:
        StoreError: If the file cannot be opened, belongs to another process, or is not a whole store of this version.
    """

    def __init__(
        self,
        path: Path | None,
        audit_rows: int = 100_000,
        share: TenantShare = TenantShare(),  # noqa: B008 - a value
        *,
        is_alone: bool = False,
    ) -> None:
        self.ahead_ns: int | None = None
        self._is_alone = is_alone
        self._path = Path(os.path.realpath(path)) if path else None  # else a link is another name for the lock
        self._audit_rows = audit_rows
        self.room = Room(share)
        self._opened = ExitStack()
        self._is_open, self._why_closed = False, _CLOSED
        self.is_new = True
        self._lent_at = 0
        """The last number in the audit log when the store was lent."""
        self._in_use = {how: threading.Lock() for how in ("audit", "backup", "long read", "read", "write")}
        self._open()
        try:
            with self._using("long read"):
                self._count()
        except StoreError:
            self.close()
            raise

    def _open(self) -> None:
        try:
            with self._opened as opened:
                if self._path is not None:
                    _lock(self._path, self._opened)
                    self.is_new = not os.path.lexists(self._path)
                    if self.is_new:
                        _check_alone(self._path)
                        _make(self._path)
                self._base = self._connect(self._path or ":memory:")
                self._reading = self._reading_long = self._reading_audit = self._base
                if self._path is None:
                    self._base.executescript(_TABLES)
                else:
                    self._set_up()
                    self._reading, self._reading_long = self._connect(self._path), self._connect(self._path)
                    self._reading_audit = self._connect(self._path)
                self.ahead_ns = self._base.execute("SELECT max(at_ns) FROM ahead").fetchone()[0]
                self._file = self._file_now()
                self._opened = opened.pop_all()
                self._is_open, self._why_closed = True, _CLOSED
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise StoreError(self._explain(error)) from None

    def policies(self) -> Iterator[tuple[PolicyKey, str]]:
        """Yield each kept policy.

        Raises:
            StoreError: If it cannot be read.
        """
        with self._using("long read"):
            rows = self._reading_long.execute("SELECT kind, setting, name, body FROM policies")
        while True:
            with self._using("long read"):
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
            row = self._reading.execute(
                "SELECT body FROM policies WHERE kind = ? AND setting = ? AND name = ?", _parts(key)
            ).fetchone()
        return row[0] if row else None

    def author(self, key: PolicyKey) -> str:
        """Return the name of the principal who set a policy; empty if it is not set.

        Raises:
            StoreError: If it cannot be read.
        """
        with self._using("read"):
            row = self._reading.execute(
                "SELECT who FROM policies WHERE kind = ? AND setting = ? AND name = ?", _parts(key)
            ).fetchone()
        return row[0] if row else ""

    def backup(self) -> BinaryIO:
        """Return a store file with this store's content at one moment, the audit log included; the caller closes it.

        The file has no name any more. It takes the disk of the store's folder, or shared memory for a store in memory.

        Raises:
            StoreError: If the store cannot be read, or the file cannot be written.
        """
        with self._using("backup"), self._folder_of_a_backup() as folder:
            made = Path(folder) / "policies.db"
            with closing(sqlite3.connect(made)) as copy:
                copy.execute("PRAGMA journal_mode = OFF")
                copy.execute("PRAGMA synchronous = OFF")
                if self._path is None:
                    # Reads on the event loop use the same connection and wait for the pages of one step.
                    with self._in_use["write"]:
                        self._base.backup(copy, pages=_PAGES_IN_A_STEP)
                else:  # from a connection of its own: neither reads nor writes wait for it
                    with closing(sqlite3.connect(self._path, timeout=_PATIENCE_S)) as base:
                        base.backup(copy)
            return made.open("rb")

    def _folder_of_a_backup(self) -> TemporaryDirectory[str]:
        if self._path is None:
            return TemporaryDirectory(prefix="sluice-", dir=_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None)
        prefix = f".{self._path.name}-backup-"
        for left in self._path.parent.glob(f"{glob.escape(prefix)}*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        return TemporaryDirectory(prefix=prefix, dir=self._path.parent)

    def damaged(self, trouble: str) -> str:
        """Return the error for a store with a part that cannot be read, with the remedy."""
        return self._explain(f"malformed: {trouble}")

    def write(self, changes: Sequence[StoredChange], at_ns: int, caller: str, address: str) -> None:
        """Write all changes and their audit lines, or nothing; they are on disk when this returns.

        Raises:
            StoreError: If it cannot be written. Nothing has changed then.
        """
        with self._transaction():
            self._write(changes, at_ns, caller, address)
            if self._is_alone:
                _set_ahead(self._base, at_ns)
        for owner, more in differences(changes).items():
            self.room.add(owner, *more)
        if self._is_alone:
            self.ahead_ns = at_ns

    def note(self, action: Action, at_ns: int, caller: str, address: str) -> None:
        """Write an action into the audit log; it is on disk when this returns.

        Raises:
            StoreError: If it cannot be written.
        """
        with self._transaction():
            line = (at_ns, caller, address, str(action.kind), "", action.name, None, action.effect, None, None)
            self._note(line, action.owner)
            self._forget_oldest([action.owner])

    def follow_topic(self) -> None:
        """Take note that the topic has all changes of this store.

        Raises:
            StoreError: If it cannot be written.
        """
        with self._transaction():
            _set_ahead(self._base, None)
        self.ahead_ns = None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._using("write"):
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
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
        with self._using("audit"):
            rows = self._reading_audit.execute(
                "SELECT at_ns, who, address, kind, setting, name, before, after, held, words FROM audit "
                "ORDER BY id DESC LIMIT ?",
                (most,),
            ).fetchall()
        return [
            Audited(at_ns, caller, address, _audited((kind, setting, name), *bodies))
            for at_ns, caller, address, kind, setting, name, *bodies in rows
        ]

    def lend(self) -> None:
        """Give the file, if there is one, to the next process until `take_back`; reads and writes fail meanwhile."""
        if self._path is not None:
            with self._using("read"):
                (self._lent_at,) = self._reading.execute("SELECT coalesce(max(id), 0) FROM audit").fetchone()
            self._why_closed = _LENT
            self.close()

    def take_back(self, *, is_as_lent: bool) -> None:
        """Open the file again: the next process did not come up.

        Args:
            is_as_lent: The next process has changed no policy: if it is of a later version, its steps are undone.

        Raises:
            StoreError: As at the start.
        """
        if self._path is None or self._is_open:
            return
        _await_release(self._path)
        copy = _copy_of(self._path, _VERSION)
        if is_as_lent and _version_at(self._path) > _VERSION and copy.exists():
            restore(copy, self._path)
        self._open()

    def changed_while_lent(self) -> dict[PolicyKey, str | None]:
        """Return the policies that were changed while the store was lent, as they are now, and count all kept ones.

        They are those of the audit log: none is lacking, unless more have changed than it keeps.
        """
        if self._path is None:
            return {}
        with self._using("audit"):
            rows = self._reading_audit.execute(
                "SELECT DISTINCT audit.kind, audit.setting, audit.name, policies.body FROM audit "
                "LEFT JOIN policies USING (kind, setting, name) WHERE audit.id > ?",
                (self._lent_at,),
            ).fetchall()
        with self._using("long read"):
            self.room.forget()
            self._count()
        kinds = set(PolicyKind)
        return {PolicyKey(PolicyKind(kind), *names): body for kind, *names, body in rows if kind in kinds}

    def close(self) -> None:
        """Give the file back as soon as no read, write or backup is under way."""
        with ExitStack() as held:
            for lock in self._in_use.values():
                held.enter_context(lock)
            self._is_open = False
            self._opened.close()

    @contextmanager
    def _using(self, how: str) -> Iterator[None]:
        """Turn SQLite's errors into `StoreError`."""
        with self._in_use[how]:
            if not self._is_open:
                raise StoreError(self._explain(self._why_closed))
            try:
                yield
            except (sqlite3.Error, OSError, ValueError) as error:
                raise StoreError(self._explain(error)) from None

    def _see_that_it_is_there(self) -> None:
        if self._file_now() != self._file:
            raise sqlite3.OperationalError(_GONE)

    def _file_now(self) -> tuple[int, int] | None:
        """Return the identity of the file at the path: SQLite would go on writing into a deleted one."""
        if self._path is None:
            return None
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _connect(self, where: Path | str) -> sqlite3.Connection:
        opened = sqlite3.connect(where, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
        return self._opened.enter_context(closing(opened))

    def _set_up(self) -> None:
        assert self._path is not None, "in memory there is nothing to check"
        _check(self._path, self._base)
        self._base.execute("PRAGMA journal_mode = WAL")
        self._base.execute("PRAGMA synchronous = FULL")
        self._base.execute("PRAGMA wal_autocheckpoint = 1")  # each change: a copy of the file alone has it
        self._base.execute("BEGIN IMMEDIATE")  # another process may have the file, without our lock
        _migrate(self._path, self._base)
        self._base.execute(_AHEAD)  # a store of an earlier Sluice has no such table, and no such column
        columns = {column for _, column, *_ in self._base.execute("PRAGMA table_info(audit)")}
        for added in ("held", "words"):
            if added not in columns:
                self._base.execute(f"ALTER TABLE audit ADD COLUMN {added} TEXT")
        self._base.execute("COMMIT")
        self._base.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the remains of a process that was killed

    def _count(self) -> None:
        """Count the policies of earlier runs. SQLite adds up the operator's and blocks: they may be 400,000 rows."""
        size = "sum(300 + length(name) + length(body))"
        of_tenants = f"substr(setting, 1, {len(OF_TENANTS)}) = '{OF_TENANTS}'"
        rows = [
            (owner, *self._reading_long.execute(f"SELECT count(*), {size} FROM policies WHERE {which}").fetchone())  # noqa: S608 - no value is in it
            for owner, which in ((BLOCKS, "kind = 'block'"), (OPERATOR, f"kind != 'block' AND NOT {of_tenants}"))
        ]
        own = self._reading_long.execute(f"SELECT kind, setting, name, length(body) FROM policies WHERE {of_tenants}")  # noqa: S608
        for kind, setting, name, length in own:
            rows.append((owner_of(PolicyKey(PolicyKind(kind), setting, name)), 1, size_of(name, None) + length))
        for owner, policies, added in rows:
            self.room.add(owner, policies, added or 0)

    def _write(self, changes: Sequence[StoredChange], at_ns: int, caller: str, address: str) -> None:
        authors = set[str]()
        for change in changes:
            parts, owner = _parts(change.key), owner_of(change.key)
            author = OPERATOR if owner == BLOCKS else owner
            authors.add(author)
            if change.after is None:
                self._base.execute("DELETE FROM policies WHERE kind = ? AND setting = ? AND name = ?", parts)
            else:
                self._base.execute(  # not REPLACE, which would empty the columns that a later Sluice has added
                    "INSERT INTO policies (kind, setting, name, body, who) VALUES (?, ?, ?, ?, ?) "
                    "ON CONFLICT (kind, setting, name) DO UPDATE SET body = excluded.body, who = excluded.who",
                    (*parts, change.after, caller),
                )
            self._note((at_ns, caller, address, *parts, change.before, change.after, change.held, change.words), author)
        self._forget_oldest(authors)

    def _note(self, line: tuple[object, ...], owner: str) -> None:
        self._base.execute(
            "INSERT INTO audit "  # noqa: S608 - no value is in it
            "(at_ns, who, address, kind, setting, name, before, after, held, words, owner, number) "
            f"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1 + coalesce({_LAST_OF_OWNER}, 0))",
            (*line, owner, owner),
        )

    def _forget_oldest(self, authors: Iterable[str]) -> None:
        for author in authors:  # no tenant's changes push out those of others
            most = self._audit_rows if author == OPERATOR else max(1, self._audit_rows // 100)
            self._base.execute(
                f"DELETE FROM audit WHERE owner = ? AND number <= {_LAST_OF_OWNER} - ?",  # noqa: S608 - no value is in it
                (author, author, most),
            )

    def _explain(self, error: Exception | str) -> str:
        return f"policies.store: {_explained(self._path or 'in memory', error)}"


def _explained(path: Path | str, error: Exception | str) -> str:
    trouble = (error.strerror if isinstance(error, OSError) else None) or str(error)  # the path is named below
    if "locked" in trouble:
        trouble = _IN_USE
    elif "unable to open" in trouble:
        trouble = _NO_FOLDER
    elif "not a database" in trouble:
        trouble = _OF_OTHERS
    elif "malformed" in trouble:
        trouble = f"is damaged: {trouble}; {_RESTORE}"
    return f"{path}: {trouble}"


def _lock(path: Path, opened: ExitStack) -> None:
    """Keep other processes out until `opened` closes; SQLite's own lock would also keep this process's readers out.

    If `opened` closes by an error, a file that was made for the lock is removed.

    Raises:
        sqlite3.Error: If the lock cannot be taken; the text says why.
    """
    file = path.with_name(f"{path.name}.lock")
    is_made = not os.path.lexists(file)

    def forget(kind: type[BaseException] | None, *_: object) -> None:
        if is_made and kind is not None:
            file.unlink(missing_ok=True)

    try:
        lock = open_regular(file, os.O_WRONLY | os.O_CREAT)
        opened.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise sqlite3.OperationalError(_IN_USE) from None
        if not os.path.samestat(os.fstat(lock), file.stat()):  # the process that made the file has just removed it
            raise sqlite3.OperationalError(_IN_USE)
        opened.push(forget)
        for beside in ("", "-wal", "-shm"):  # SQLite would wait for the other end of a FIFO, and write into a device
            with suppress(FileNotFoundError):
                each = Path(f"{path}{beside}")
                check_regular(each.stat(), each)
    except OSError as error:
        beside = "" if str(error.filename) == str(path) else f"{error.filename}: "
        special = f"{beside}{error.strerror}" if error.errno == errno.EINVAL else _NO_FOLDER
        raise sqlite3.OperationalError(special) from None


def store_of(store: Path, process: int) -> Path:
    """Return the store of one of several processes; that of the first is the configured file, as with one process."""
    return store.with_name(f"{store.stem}-{process}{store.suffix}") if process else store


def first_of(store: Path) -> Path | None:
    """Return the store, if it is there, of which a start with several processes would make this one a copy."""
    stem, _, number = store.stem.rpartition("-")
    first = store.with_name(f"{stem}{store.suffix}")
    return first if stem and number.isascii() and number.isdigit() and first.exists() else None


def stores_beside(store: Path) -> dict[int, Path]:
    """Return the stores `NAME-N` beside a store by their numbers: those of runs with several processes."""
    beside = dict[int, Path]()
    for path in store.parent.glob(f"{glob.escape(store.stem)}-*{glob.escape(store.suffix)}"):
        number = path.name[len(store.stem) + 1 : len(path.name) - len(store.suffix)]
        if number.isascii() and number.isdigit():
            beside[int(number)] = path
    return beside


def _check_alone(path: Path) -> None:
    """Check that a store that is not there leaves no policies behind that were set with several processes."""
    if beside := stores_beside(path):
        store = beside[min(beside)]
        raise sqlite3.OperationalError(
            f"is not there, but {store.name} is, a store of one of several processes: `sluice restore {store} {path}` "
            "goes on with its policies; or remove it to begin without"
        )


def _make(path: Path) -> None:
    """Make a store under a new name: whole, or not at all, even if the process is killed at any moment."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        raise sqlite3.OperationalError(
            f"is not there, but {log.name}, which belongs to it, is: put the file back, or remove that, too"
        )
    with replacing(path, _MODE) as made, closing(sqlite3.connect(made.name)) as base:
        base.executescript(f"BEGIN; {_TABLES} COMMIT;")


def _check(path: Path, base: sqlite3.Connection) -> None:
    """Check that a file is a whole store of this version, or of one that steps lead from.

    Raises:
        sqlite3.Error: If it is not; the text names the remedy.
    """
    if path.stat().st_size == 0:
        raise sqlite3.OperationalError(f"is empty, and so no policy store: a copy may have gone wrong; {_RESTORE}")
    (application,) = base.execute("PRAGMA application_id").fetchone()
    if application == _APPLICATION:
        _check_version(path, _version_of(base))
    tables = {name for (name,) in base.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if tables and application != _APPLICATION:
        raise sqlite3.OperationalError(_OF_OTHERS)
    if not tables >= {"policies", "audit"}:
        raise sqlite3.OperationalError(f"has no policies' tables: a copy may have gone wrong; {_RESTORE}")
    (result,) = base.execute("PRAGMA quick_check(1)").fetchone()
    if result != "ok":
        raise sqlite3.OperationalError(f"is malformed: {result}")


def _check_version(path: Path, version: int) -> None:
    """Check that this Sluice reads a version.

    Raises:
        sqlite3.Error: If it does not; the text names the remedy.
    """
    earliest, copy = min(_STEPS, default=_VERSION), _copy_of(path, _VERSION)
    if earliest <= version <= _VERSION:
        return
    remedy = "start that Sluice, or put a backup in its place (`sluice restore`)"
    if version > _VERSION and copy.exists():
        remedy = (
            f"start that Sluice; or, without the changes since, go back to the copy that it has kept: `sluice restore "
            f"{copy} {path} --replace`"
        )
    reads = f"version {_VERSION}" if earliest == _VERSION else f"versions {earliest} to {_VERSION}"
    raise sqlite3.OperationalError(
        f"was written by another version of Sluice: it is of version {version}, and this Sluice reads {reads}; {remedy}"
    )


def _version_of(base: sqlite3.Connection) -> int:
    return int(base.execute("PRAGMA user_version").fetchone()[0])


def _version_at(path: Path) -> int:
    """Return the version of a store; 0 if it cannot be read."""
    with suppress(sqlite3.Error, OSError), _reading(path) as base:
        return _version_of(base)
    return 0


def _copy_of(path: Path, version: int) -> Path:
    """Return the copy that is kept of a store of an earlier version."""
    return path.with_name(f"{path.name}.v{version}")


def _migrate(path: Path, base: sqlite3.Connection) -> None:
    """Make a store one of this version, by a transaction that has begun; keep a copy before.

    Raises:
        StoreError: If the copy cannot be written.
    """
    version = _version_of(base)
    if version == _VERSION:
        return
    copy = _copy_of(path, version)
    try:
        write_backup(copy, read_backup(path))
    except StoreError as error:
        raise StoreError(
            f"policies.store: {path}: is of version {version}, and stays so, as no copy of it can be kept for the way "
            f"back from version {_VERSION}: {error}"
        ) from None
    for each in range(version, _VERSION):
        for statement in _STEPS[each]:
            base.execute(statement)
    base.execute(f"PRAGMA user_version = {_VERSION}")
    structlog.get_logger().info(
        "policies: the store is made one of this version", store=str(path), before=version, now=_VERSION, copy=str(copy)
    )


def check_store(path: Path) -> bool:
    """Check the store of a proxy without changing anything; return whether another process uses it.

    Raises:
        FileNotFoundError: If there is no file: a start makes it.
        StoreError: If it is not a whole store of this version, or cannot be read.
    """
    path = Path(os.path.realpath(path))
    try:
        if not path.exists():
            _check_alone(path)
        with _reading(path) as base:
            _check(path, base)
    except FileNotFoundError:
        raise
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"policies.store: {_explained(path, error)}") from None
    return _is_in_use(path)


def _is_in_use(path: Path) -> bool:
    """Whether a process has the store open, as its lock says; nothing is changed."""
    with ExitStack() as opened:
        try:
            lock = open_regular(path.with_name(f"{path.name}.lock"))
            opened.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
    return False


def _await_release(path: Path) -> None:
    """Wait a while until no process has the store open.

    The system closes the files of a process that is killed one after the other: who sees the end of a connection to it
    may find its lock still there.
    """
    until = time.monotonic() + _RELEASE_S
    while _is_in_use(path) and time.monotonic() < until:
        time.sleep(_LOOK_S)


def _audited(key: tuple[str, str, str], *bodies: str | None) -> StoredChange | Action:
    kind, setting, name = key
    if kind not in set(PolicyKind):
        return Action(kind, name, bodies[1] or "")
    return StoredChange(PolicyKey(PolicyKind(kind), setting, name), *bodies)


def _parts(key: PolicyKey) -> tuple[str, str, str]:
    return key.kind.value, key.setting, key.name


@dataclass(frozen=True, slots=True)
class Restored:
    """The content of a store that was checked: how many policies, and how many changes of the audit log."""

    policies: int
    changes: int


def write_backup(path: Path, backup: bytes) -> Restored:
    """Write what `Store.backup` returned into a file, which appears whole or not at all.

    Raises:
        StoreError: If it cannot be written, or is not whole; or if the file is a device, or the store of a proxy that
            runs, which would lose its file by that.
    """
    path = Path(os.path.realpath(path))
    try:
        with suppress(FileNotFoundError):
            check_regular(path.stat(), path)
            if _is_in_use(path):
                raise StoreError(f"{path}: is the store of a process that runs; name another file for the backup")
        with replacing(path, _MODE) as made:
            made.write(backup)
            made.flush()
            with closing(sqlite3.connect(made.name, isolation_level=None)) as base:
                base.execute("PRAGMA journal_mode = DELETE")  # one file, which can be read where nothing can be written
                content = _content(Path(made.name), base)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(_explained(path, error)) from None
    return content


def read_backup(store: Path) -> bytes:
    """Return the backup of a store, whether a proxy uses it or not, without changing anything.

    Raises:
        StoreError: If it is not a store, or cannot be read.
    """
    try:
        with _reading(store) as base, closing(sqlite3.connect(":memory:")) as copy:
            base.backup(copy)
            return copy.serialize()
    except (sqlite3.Error, OSError) as error:
        raise StoreError(_explained(store, error)) from None


def restore(backup: Path, store: Path, at_ns: int | None = None) -> Restored:
    """Put the content of a backup in a store's place. A store that is there is replaced, with its `-wal`.

    Args:
        backup: The backup.
        store: The store.
        at_ns: The time of the restore, nanoseconds since 1970: of older changes on a topic that only the processes of
            one proxy follow, the restored ones hold. None: the store is as far as the backup was.

    Raises:
        StoreError: If the backup is not whole, or a proxy uses the store. Nothing has changed then.
    """
    try:
        with _reading(backup) as base, closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            content = _content(backup, base)
            base.backup(copy)
            if at_ns is not None:
                copy.execute(_AHEAD)
                _set_ahead(copy, at_ns)
            store_bytes = copy.serialize()
    except (sqlite3.Error, OSError) as error:
        raise StoreError(_explained(backup, error)) from None
    store = Path(os.path.realpath(store))
    try:
        with ExitStack() as opened:
            _lock(store, opened)
            for beside in ("-wal", "-shm"):  # first: SQLite would lay them over another store
                Path(f"{store}{beside}").unlink(missing_ok=True)
            with replacing(store, _MODE) as made:
                made.write(store_bytes)
                if store.exists():  # its owner must be able to open the new one
                    there = store.stat()
                    os.fchown(made.fileno(), there.st_uid, there.st_gid)
                    os.fchmod(made.fileno(), there.st_mode)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(_explained(store, error)) from None
    return content


def spread(store: Path, processes: int, *, is_carried: bool) -> list[Path]:
    """Have the stores of further processes begin as copies of the first one's, and return those that were written.

    Args:
        store: The configured store, which is the first process's.
        processes: The number of processes.
        is_carried: Whether a topic carries changes to all. Otherwise each process has changes of its own, which stay
            unless one process alone has changed the first store since.

    Raises:
        StoreError: If a store cannot be read or written, or another process uses it.
    """
    others = [store_of(store, process) for process in range(1, processes)]
    try:
        if not check_store(store):  # else the start fails by the lock, with the remedy
            with _reading(store) as base:
                is_ahead = _ahead_of(base) is not None
            others = [other for other in others if is_carried or is_ahead or not other.exists()]
            for other in others:
                restore(store, other)
            if is_ahead and not is_carried:
                for each in (store, *others):
                    with closing(Store(each)) as written:
                        written.follow_topic()
            return others
    except FileNotFoundError:  # a start makes it
        pass
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"policies.store: {_explained(store, error)}") from None
    return []


def left_over(store: Path, processes: int) -> list[str]:
    """Return a warning for each store that no process uses any more and that has policies which this one never had."""
    warnings = list[str]()
    for number, other in sorted(stores_beside(store).items()):
        if 0 < number < processes:
            continue
        with suppress(StoreError, FileNotFoundError):
            if unknown := _unknown_policies(store, other):
                warnings.append(
                    f"policies.store: {other}: has {unknown} policies that {store} never had, and no process uses it: "
                    "set them again, or remove the file"
                )
    return warnings


def _unknown_policies(store: Path, other: Path) -> int:
    """Return how many policies another store has that are neither in a store nor in its audit log."""
    known = "SELECT kind, setting, name FROM main.policies UNION ALL SELECT kind, setting, name FROM main.audit"
    try:
        check_store(store)
        check_store(other)
        with _reading(store) as base:
            base.execute("ATTACH ? AS other", (f"{other.absolute().as_uri()}?mode=ro",))
            query = f"SELECT count(*) FROM other.policies WHERE (kind, setting, name) NOT IN ({known})"  # noqa: S608 - no value is in it
            return int(base.execute(query).fetchone()[0])
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"policies.store: {_explained(other, error)}") from None


def _set_ahead(base: sqlite3.Connection, at_ns: int | None) -> None:
    base.execute("DELETE FROM ahead")
    if at_ns is not None:
        base.execute("INSERT INTO ahead (at_ns) VALUES (?)", (at_ns,))


def _ahead_of(base: sqlite3.Connection) -> int | None:
    """Return `Store.ahead_ns` of a store that may be of an earlier Sluice."""
    has_table = base.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'ahead'").fetchone()[0]
    return base.execute("SELECT max(at_ns) FROM ahead").fetchone()[0] if has_table else None


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    check_regular(path.stat(), path)
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_PATIENCE_S)) as base:
        yield base


def _content(path: Path, base: sqlite3.Connection) -> Restored:
    _check(path, base)
    counts = base.execute("SELECT (SELECT count(*) FROM policies), (SELECT count(*) FROM audit)").fetchone()
    return Restored(*counts)
