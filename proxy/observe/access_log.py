"""Write the access log: a line for each event, and lines of streams and limiters for each interval."""

import importlib.metadata
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

from accesslog.record import (
    ChangeLine,
    ConnectionLine,
    HeartbeatLine,
    RejectLine,
    StandstillLine,
    ThrottleLine,
)
from protocol.printable import printable
from proxy.config.sections import AccessLogSettings as Section
from proxy.degraded import Degraded
from proxy.observe.connection import Connection, ConnectionRefusals
from proxy.observe.log_files import DeletedLog, LogFiles, recover
from proxy.observe.log_lines import (
    Levels,
    LineSpan,
    LogLines,
    PeriodicLines,
    ShareChange,
    ShareLines,
    Writer,
    address_of,
    as_they_are,
    hashed,
    in_log,
    moment_now,
    read_key,
    utc,
)
from proxy.observe.log_writer import Keep, LogTrouble, LogWriter, Losses, Notices, Rotation

MOST_CHANGE_TEXT = 1000
"""Most characters of each text of a change line."""


class AccessLog:
    """Writes the lines of the access log.

    Args:
        writer: The proxy and its run, as the lines name them.
        files: The files that get the lines; None to write none.
    """

    def __init__(self, writer: Writer, files: LogFiles | None) -> None:
        self.boot_id = writer.boot_id
        self.files = files
        self._shown = writer.shown
        self._of_beats = {"proxy_version": writer.version, "fleet": writer.fleet}
        self._lines = LogLines(writer, files)
        self._shares = ShareLines(self._lines, writer.shown)

    @property
    def dropped_lines(self) -> int:
        """Number of lines that could not be written."""
        return self._lines.lost

    @property
    def lines(self) -> int:
        """Number of lines so far, the dropped ones included."""
        return self._lines.written

    @property
    def deleted_files(self) -> int:
        """Number of closed files that were deleted because of their age or their total size."""
        return self.files.retention.deleted_files if self.files else 0

    @property
    def closed_bytes(self) -> tuple[int, int]:
        """Bytes of the closed files, and the most that they may have; 0 of both where nothing bounds them."""
        retention = self.files.retention if self.files else None
        return (retention.size, retention.most_bytes) if retention else (0, 0)

    def degraded(self) -> Iterator[Degraded]:
        """Yield the states in which lines are lost, or stay for longer than they should."""
        if self.files is not None:
            yield from self.files.degraded()

    def periodic(self, levels: Levels) -> PeriodicLines:
        """Return the lines of streams and limiters, which name the levels of `levels`."""
        return PeriodicLines(self._lines, self._shown, levels)

    def connection(self, span: LineSpan, connection: Connection, *, detail: str, **end: Any) -> None:
        """Write that a connection ended."""
        self._lines.add(
            ConnectionLine,
            span,
            connection_id=connection.connection_id,
            client_address=address_of(connection, self._shown),
            client_version=in_log(connection.client_version),
            client_role=in_log(connection.client_role),
            role_is_proved=connection.role_is_proved,
            client_tls=connection.is_tls,
            role=connection.role,
            broker=connection.broker,
            detail=printable(self._scrubbed(detail, connection)),
            **end,
        )
        self.flush()

    def throttle(self, span: LineSpan, connection: Connection, side: str, cause: str) -> None:
        """Write that a reason not to read ended."""
        self._lines.add(
            ThrottleLine,
            span,
            connection_id=connection.connection_id,
            client_address=address_of(connection, self._shown),
            side=side,
            cause=cause,
        )
        self.flush()

    def reject(self, span: LineSpan, refused: ConnectionRefusals) -> None:
        """Add the refusals of a connection in `span`; the next heartbeat writes them."""
        connection = refused.connection
        self._lines.add(
            RejectLine,
            span,
            connection_id=connection.connection_id,
            client_address=address_of(connection, self._shown),
            client_role=in_log(connection.client_role),
            role_is_proved=connection.role_is_proved,
            topic=in_log(refused.topic),
            reason=refused.reason,
            detail=_cut(printable(self._scrubbed(refused.detail, connection))),
            rejected=refused.refused,
        )

    def change(self, moment: LineSpan, **fields: str | None) -> None:
        """Write a change; `fields` are the line's fields, each cut if it is long."""
        self._lines.add(ChangeLine, moment, **{name: _cut(text and printable(text)) for name, text in fields.items()})
        self.flush()

    def share(self, change: ShareChange) -> None:
        """Add that this proxy's share of a limit changed now; the line is written with the next one."""
        now = moment_now()
        self._shares.add(LineSpan.between(now, now), change)

    def standstill(self, span: LineSpan) -> None:
        """Write that the process did nothing over `span`."""
        self._lines.add(StandstillLine, span)
        self.flush()

    def heartbeat(self, span: LineSpan, *, last: bool, until: int | None = None) -> None:
        """Write that the process lived through `span`; declares losses so far, if the log can be written.

        Args:
            span: The times.
            last: The process ends.
            until: The time up to which all lines are made, if that is before the span's end; nanoseconds since 1970.
        """
        self._lines.declare((span.end_wall, span.end_mono))
        self._shares.turn()
        beat = {"dropped_lines": self.dropped_lines, "last": last} | self._of_beats
        self._lines.add(HeartbeatLine, span, **beat, complete_until=None if until is None else utc(until))
        self.flush()

    def rest(self, seconds: float) -> None:
        """Note that no line is expected for this time."""
        self._lines.rest(seconds)

    def flush(self) -> None:
        """Hand the added lines to the files."""
        self._lines.flush()

    def close(self, patience_s: float = 5.0) -> bool:
        """Write everything and close; return False if the disk did not take it, or not in time."""
        return self._lines.close(patience_s)

    def _scrubbed(self, text: str, connection: Connection) -> str:
        """Return a text for people, without the client's address if addresses are hashed."""
        host = connection.client_host
        return text.replace(host, self._shown(host)) if host else text


def new_boot_id() -> str:
    """Return a unique name for this run; names sort by time."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= MOST_CHANGE_TEXT else text[: MOST_CHANGE_TEXT - 1] + "…"


def open_access_log(
    section: Section,
    proxy_id: str,
    on_trouble: Callable[[LogTrouble, str | None], None] = lambda *_: None,
    fleet: str = "",
) -> AccessLog:
    """Open the access log of a new run.

    Args:
        section: The section `access_log`.
        proxy_id: The name of the proxy.
        on_trouble: Called in either thread when a trouble begins, with the error, and with None when it is over.
        fleet: The fleet that the proxy is a member of; empty for none.

    Raises:
        OSError: If the folder cannot be made, read or written.
        AddressKeyError: If the key for addresses cannot be used.
    """
    shown = as_they_are if section.address_key is None else hashed(read_key(section.address_key))
    writer = Writer(proxy_id, new_boot_id(), importlib.metadata.version("pulsar-sluice"), shown, fleet)
    if section.dir is None:
        return AccessLog(writer, None)
    section.dir.mkdir(parents=True, exist_ok=True)
    keep = Keep(section.retain_age, section.kept_size(shutil.disk_usage(section.dir).total))
    rotation = Rotation(section.rotate_size, section.rotate_age, section.fsync, keep, section.compression)
    losses = Losses(writer.boot_id, recover(section.dir, proxy_id))
    notices = Notices(on_trouble, DeletedLog(time.monotonic_ns).deleted)
    disk = LogWriter(section.dir, (proxy_id, writer.boot_id), rotation, losses, notices)
    return AccessLog(writer, LogFiles(disk, section.queue))
