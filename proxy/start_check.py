"""Finds the problems and warnings of a start with a configuration, without serving or making anything.

All problems are found at once. If the addresses and the policy store are both in use, both are warnings: a proxy then
runs with this configuration, and its next start finds them free.
"""

import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import get_ident

import structlog

from protocol.endpoint import Endpoint
from proxy.admin.auth import Authenticator
from proxy.admin.forwarding.forwarder import Forwarder
from proxy.admin.refusals import RefusalLog
from proxy.config.model import Config, ConfigError
from proxy.config.sources import Sources, variables
from proxy.config.yaml_reader import KeyPath
from proxy.counters import Counters
from proxy.descriptors import DescriptorShares, highest_limit
from proxy.files import TokenFileError, read_token
from proxy.identity.evidence import token_credentials
from proxy.observe.log_lines import AddressKeyError, read_key
from proxy.observe.operator_log import hear_warning, warnings_heard
from proxy.policies.store import StoreError, check_store, left_over, store_of
from proxy.session.engine import verifier_of
from proxy.tls.certificates import Certificates, Expiry, ExpiryLog, forward_tls

_PSEUDO = frozenset(
    {
        *("binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs", "fusectl", "mqueue"),
        *("nsfs", "proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs"),
    }
)
"""Linux's file systems without files of users (`/proc/filesystems` lists them among those without a device)."""
_TAKES_READING = os.R_OK | os.W_OK | os.X_OK


@dataclass(slots=True)
class StartCheck:
    """The findings about a start with one configuration.

    Attributes:
        problems: Problems with which `sluice serve` would not start, a line each.
        warnings: Problems with which it would serve, a line each.
    """

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, config: Config, sources: Sources | None = None, running: Sequence[Config] = ()) -> "StartCheck":
        """Check all files, addresses and names that a start would use.

        Args:
            config: The configuration.
            sources: The source of each value, which findings name; None: they name none.
            running: The configurations that the processes have which this start replaces. An address or a store that
                is in use, and is none of their own, is a problem then. Empty: they are not known.
        """
        check = cls()
        with _unlogged(), warnings_heard() as heard:
            check._read_files(config)
        check.warnings += heard
        is_running = check._addresses_are_taken(config, running)
        if config.policies.store is not None:
            if running:
                is_running = config.policies.store in {each.policies.store for each in running}
            for process in range(config.processes):
                check._look_at_store(store_of(config.policies.store, process), is_running=is_running)
            check.warnings += left_over(config.policies.store, config.processes)
        check._look_at_address_key(config.access_log.address_key)
        check._look_at_folder("access_log.dir", config.access_log.dir)
        check._look_at_folder("drain.state", config.drain.state)
        check._look_for_brokers(config)
        shortage = DescriptorShares.of(config, highest_limit()).shortage()
        check.warnings += [f"max_connections: {config.max_connections}: {shortage}"] if shortage else []
        if sources is not None:
            check.problems = sources.placed([(_key_in(each), each) for each in check.problems])
            check.warnings = sources.placed([(_key_in(each), each) for each in check.warnings])
        return check

    def _read_files(self, config: Config) -> None:
        """Read each file of tokens, certificates and keys."""
        refused = RefusalLog(Counters().admin_refused, time.monotonic_ns)
        expiries: list[Callable[[], tuple[Expiry, ...]]] = []
        with self._noting():  # in the order of a reload
            expiries.append(Certificates(config).expiries)
        with self._noting():
            expiries.append(Authenticator(config.admin_access, refused, config.admin.host).expiries)
        with self._noting():
            verifier_of(config)
        with self._noting():
            forwarder = Forwarder.of(config, Counters(), refused)
            expiries += [forwarder.broker.expiries] if forwarder else []
        with self._noting():
            if config.otlp.ca is not None:
                files = forward_tls(config.otlp.ca, "otlp")
                expiries.append(lambda: files.expiries)
        with self._noting():
            if config.fleet is not None and config.fleet.token_file is not None:
                token_credentials(config.fleet.token_file, "fleet.token_file")
        ExpiryLog(lambda: tuple(expiry for each in expiries for expiry in each())).report()
        shown = (("admin_forward", config.admin_forward.token, "request"), ("otlp", config.otlp.token, "export"))
        for section, token, when in shown:
            try:
                if token is not None:
                    read_token(token)
            except TokenFileError as error:
                self.warnings.append(f"{section}.token: {error}; it is read for each {when}")

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except ConfigError as error:
            self.problems += error.problems

    def _addresses_are_taken(self, config: Config, running: Sequence[Config]) -> bool:
        """Try to listen on each address; return whether one is in use."""
        own = {address for each in running for address in addresses_of(each)}
        is_taken = False
        for address in addresses_of(config):
            key, _, endpoint = address
            error = _why_not_listening(endpoint)
            if error is not None and error.errno == errno.EADDRINUSE and (not running or address in own):
                is_taken = True
                self.warnings.append(
                    f"{key}: {endpoint.address}: is in use, perhaps by the proxy that this start replaces, or by "
                    "systemd for it; any other start needs it free"
                )
            elif error is not None:
                self.problems.append(f"{key}: cannot listen on {endpoint.address}: {error.strerror or error}")
        return is_taken

    def _look_at_store(self, store: Path, *, is_running: bool) -> None:
        folder = Path(os.path.realpath(store)).parent
        if store.exists() and not store.is_file():
            self.problems.append(f"policies.store: {store}: not a regular file; name a file, which is made if needed")
        elif not os.access(folder, os.W_OK | os.X_OK) or (store.exists() and not os.access(store, os.R_OK | os.W_OK)):
            self.problems.append(
                f"policies.store: {store}: cannot be read and written by this user, or its folder is not there"
            )
        elif kind := _pseudo_file_system(folder):
            self.problems.append(f"policies.store: {store}: {folder} {_keeps_no_files(kind)}")
        else:
            self._look_at_room("policies.store", store, folder, is_needed=not store.exists())
            with contextlib.suppress(FileNotFoundError):
                self._look_into_store(store, is_running=is_running)

    def _look_at_room(self, key: str, path: Path, folder: Path, *, is_needed: bool) -> None:
        """Add a finding if the file system of a folder takes nothing more; `is_needed`: a start fails then."""
        room = os.statvfs(folder)
        if room.f_files and not room.f_favail:
            self.problems.append(f"{key}: {path}: the file system of {folder} takes no further file: remove some there")
        elif room.f_blocks and not room.f_bavail:
            findings = self.problems if is_needed else self.warnings
            findings.append(f"{key}: {path}: the file system of {folder} is full: make room there")

    def _look_into_store(self, store: Path, *, is_running: bool) -> None:
        try:
            is_locked = check_store(store)
        except StoreError as error:
            self.problems.append(str(error))
            return
        if is_locked and is_running:
            self.warnings.append(f"policies.store: {store}: is in use, perhaps by the proxy that this start replaces")
        elif is_locked:
            self.problems.append(f"policies.store: {store}: another process uses it; give each proxy a file of its own")

    def _look_at_address_key(self, key: Path | None) -> None:
        if key is not None:
            try:
                read_key(key)
            except AddressKeyError as error:
                self.problems.append(f"access_log.address_key: {error}")

    def _look_at_folder(self, key: str, folder: Path | None) -> None:
        if folder is None:
            return
        there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
        if not there.is_dir():
            self.problems.append(f"{key}: {folder}: {there} is not a folder")
        elif not os.access(there, _TAKES_READING):
            self.problems.append(
                f"{key}: {folder}: {there} cannot be read and written by this user: chown or chmod it, or mount it "
                "writable"
            )
        elif kind := _pseudo_file_system(there):
            self.problems.append(f"{key}: {folder}: {there} {_keeps_no_files(kind)}")
        else:
            self._look_at_room(key, folder, there, is_needed=False)

    def _look_for_brokers(self, config: Config) -> None:
        forward = config.admin_forward.url
        named = [("broker", each) for each in config.broker] + ([("admin_forward.url", forward)] if forward else [])
        for key, endpoint in named:
            if key == "admin_forward.url" and _is_own_admin(config, endpoint):
                self.problems.append(
                    f"{key}: {endpoint}: this is the proxy's own admin address; name the web service of a broker"
                )
            try:
                socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as error:
                self.warnings.append(
                    f"{key}: {endpoint}: its name cannot be resolved: {getattr(error, 'strerror', None) or error}; "
                    "clients get an error until it can be"
                )


def _is_own_admin(config: Config, endpoint: Endpoint) -> bool:
    host = endpoint.host.lower().removesuffix(".")
    own = {each.host for key, _, each in addresses_of(config) if key == "admin" and each.port == endpoint.port}
    return host in own or (host in _LOOPBACK and not own.isdisjoint(_LOOPBACK | _ANY))


_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104 - to be compared with


def addresses_of(config: Config) -> list[tuple[str, int, Endpoint]]:
    """Return each address to listen on, with its key and process; each process has its own, but for `listen`."""
    named = [("listen", 0, each) for each in config.listen]
    for key, each in (("admin", config.admin), ("metrics", config.metrics)):
        if each is not None:
            count = config.processes if each.port else 1
            named += [(key, index, address_of_process(each, index)) for index in range(count)]
    return named


def address_of_process(endpoint: Endpoint, index: int) -> Endpoint:
    """Return the admin or metrics address of one of several processes: its number is added to the port, but for 0."""
    return endpoint._replace(port=endpoint.port and endpoint.port + index)


_KEYS = {
    ".".join(key[:length]): key[:length] for key, _ in variables(Config).values() for length in range(1, len(key) + 1)
}


def _key_in(finding: str) -> KeyPath:
    """Return the key with which a finding begins; empty if there is none."""
    return _KEYS.get(finding.partition(":")[0], ())


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Write no line of this thread to the operator's log: the same start would write it."""
    before, checking = structlog.get_config(), get_ident()

    def drop(logger: object, method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if get_ident() != checking:  # a process that serves goes on meanwhile
            return line
        hear_warning(logger, method, line)
        raise structlog.DropEvent

    structlog.configure(processors=[drop, *before["processors"]])
    try:
        yield
    finally:
        structlog.configure(**before)


def _pseudo_file_system(folder: Path) -> str:
    """Return the type of a folder's file system if it shows the kernel's state and keeps no files; empty for others.

    `os.access` allows root to write there.
    """
    device = folder.stat().st_dev
    numbers = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError), Path("/proc/self/mountinfo").open() as mounts:
        for mount in mounts:
            if mount.split(" ", 3)[2] == numbers:
                kind = mount.rpartition(" - ")[2].split(" ", 1)[0]
                return kind if kind in _PSEUDO else ""
    return ""


def _keeps_no_files(kind: str) -> str:
    return f"is in a file system of type {kind}, which keeps no files; name a folder on a disk or in a tmpfs"


def _why_not_listening(endpoint: Endpoint) -> OSError | None:
    """Return why an address cannot be listened on; None if it can."""
    try:
        infos = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, *_, address in dict.fromkeys(infos):
            socket.create_server(address, family=family).close()
    except OSError as error:
        return error
    return None
