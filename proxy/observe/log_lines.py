"""Numbers, encodes and hands on the lines of the access log, and declares those that were lost."""

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec

from accesslog.record import SCHEMA_VERSION, Kinds, Line, LossLine
from proxy.observe.addresses import Shown, as_they_are
from proxy.observe.log_files import LogFiles
from proxy.observe.losses import Loss

_DEFAULTS = {
    kind: {field.name: field.default for field in msgspec.structs.fields(kind) if not field.required}
    for kind in Kinds.BY_NAME.values()
}

MOST_NAME = 1024
"""Bytes of a name in a line."""
_MOST_SHORT = MOST_NAME // 6 - 1
"""Characters that JSON never needs more bytes for."""
_BEGIN, _END = 100, 40
"""Characters that are left of a longer one."""
_JOINED = re.compile(r"@((?:non-)?persistent://)(?!.*@(?:non-)?persistent://)", re.DOTALL)
"""Where a topic's name begins that another one is joined to: `protocol.topic_name` has no topic with this in it."""
_PARTITION = re.compile(r"-partition-(?:0|[1-9][0-9]{0,9})\Z")
"""As the compliance job takes it away."""
_SHORTER = re.compile(rf".{{{_BEGIN}}}…[0-9a-f]{{32}}….{{{_END}}}", re.DOTALL)
_JSON = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when: wall clock for people, monotonic for rates; nanoseconds."""

    start_wall: int
    end_wall: int
    duration: int

    def fields(self) -> dict[str, Any]:
        """As the lines have it."""
        return {"start": _utc(self.start_wall), "end": _utc(self.end_wall), "duration_ms": self.duration / 1e6}

    def before_end(self, elapsed: int) -> datetime:
        """The wall clock's time so many nanoseconds before the end."""
        return _utc(self.end_wall - elapsed)


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes the log, and how it shows addresses.

    Args:
        proxy_id: Which proxy this is.
        boot_id: Which run of it.
        version: Of Sluice.
        shown: What stands for a client's address.
    """

    proxy_id: str
    boot_id: str
    version: str = ""
    shown: Shown = as_they_are


def _utc(wall_ns: int) -> datetime:
    return datetime.fromtimestamp(wall_ns // 1000 / 1e6, UTC)


def in_log(name: str) -> str:
    """A name as lines have it: itself, or, where JSON would need more than `MOST_NAME` bytes for it, a shorter one.

    That has a digest of the whole: so one name is always the same in the log, and no two are; a name that looks like a
    shorter one has its own. A client pays for a long name once, and the log has it in each interval, six bytes for each
    odd character.

    Of a topic's name, what is before the suffix of a partition is shortened, and of a name joined to its topic's each:
    who joins such names, or takes a suffix away, has what another line says.
    """
    if len(name) <= _MOST_SHORT and "…" not in name:
        return name
    joined = _JOINED.search(name)
    if joined is not None:
        return f"{in_log(name[: joined.start()])}@{in_log(name[joined.end() - len(joined[1]) :])}"
    partition = _PARTITION.search(name)
    suffix = "" if partition is None else partition[0]
    own = name.removesuffix(suffix)
    if len(_JSON.encode(own)) <= MOST_NAME and not _SHORTER.fullmatch(own):
        return name
    digest = blake2b(own.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return f"{own[:_BEGIN]}…{digest}…{own[-_END:]}{suffix}"


class LogLines:
    """One run's lines, in their order: every line has its number, also those that are lost.

    Args:
        writer: Who writes them.
        files: Where they go; None to write none.

    Attributes:
        written: Lines so far, the lost ones included.
    """

    def __init__(self, writer: Writer, files: LogFiles | None) -> None:
        self.written = 0
        self._writer = writer
        self._files = files
        self._pending = bytearray()
        self._pending_lines = 0
        self._encoder = msgspec.json.Encoder()
        self._head_of: tuple[type[Line], Span] | None = None
        self._head = b""
        self._span: Span | None = None
        self._span_fields: dict[str, Any] = {}

    @property
    def lost(self) -> int:
        """Lines that could not be written."""
        return self._files.losses.total if self._files else 0

    @property
    def is_kept(self) -> bool:
        """Whether lines are written anywhere."""
        return self._files is not None

    def skip(self) -> None:
        """A line that is counted only."""
        self.written += 1

    def add(self, kind: type[Line], span: Span, **fields: Any) -> None:
        """One more line."""
        if self._files is None:
            self.skip()
            return
        self._pending += self._encoded(kind, span, fields)
        self._pending_lines += 1

    def known(self, kind: type[Line], fields: dict[str, Any]) -> bytes:
        """Some of a line's fields, for `add_known`; those that have their default are left out."""
        left_out = _DEFAULTS[kind]
        kept = {name: value for name, value in fields.items() if name not in left_out or left_out[name] != value}
        return self._encoder.encode(kept)[1:-1] + b","

    def add_known(self, kind: type[Line], span: Span, known: bytes, fields: dict[str, Any]) -> None:
        """One more line: what `known` gave, and the rest of its fields."""
        if self._head_of != (kind, span):
            self._head_of, self._head = (kind, span), self._head_bytes(kind, span)
        fields["seq"] = self.written
        self.written += 1
        self._pending += b"%b%b%b\n" % (self._head, known, self._encoder.encode(fields)[1:])
        self._pending_lines += 1

    def flush(self) -> None:
        """Hand what was added to the files."""
        if self._files is not None and self._pending:
            self._files.write(bytes(self._pending), self.written - self._pending_lines, self._pending_lines)
        self._pending.clear()
        self._pending_lines = 0

    def rest(self, seconds: float) -> None:
        """Nothing is about to come for so long."""
        if self._files is not None:
            self._files.rest(seconds)

    def declare(self, at: int) -> None:
        """A line for each loss, if there is a log again; and another one if that is lost, too."""
        if self._files is not None and self._files.is_writing:
            self._declare(self._files, at)

    def close(self, patience_s: float) -> bool:
        """Write everything and close. False if the disk did not take it, or not in time."""
        self.flush()
        if self._files is None:
            return True
        if not self._files.drain(patience_s):
            return False
        self._declare(self._files, time.time_ns())  # whether it can be written or not: there is no later time
        return self._files.close(patience_s) and self._files.losses.are_declared

    def _declare(self, files: LogFiles, at: int) -> None:
        losses, moment = files.losses.take(), Span(at, at, 0)
        if losses:
            self.flush()
        for loss in losses:
            line = self._encoded(LossLine, moment, _loss_fields(loss))
            files.write(line, self.written - 1, 1, (loss,))

    def _head_bytes(self, kind: type[Line], span: Span) -> bytes:
        """How all lines of a kind begin that are of the same span."""
        writer, tag = self._writer, kind.__struct_config__.tag
        head = {"kind": tag, "v": SCHEMA_VERSION, "proxy_id": writer.proxy_id, "boot_id": writer.boot_id}
        return self._encoder.encode(head | span.fields())[:-1] + b","

    def _encoded(self, kind: type[Line], span: Span, fields: dict[str, Any]) -> bytes:
        if span is not self._span:  # thousands of lines of one interval have the same
            self._span, self._span_fields = span, span.fields()
        writer = self._writer
        line = kind(proxy_id=writer.proxy_id, boot_id=writer.boot_id, seq=self.written, **self._span_fields, **fields)
        self.written += 1
        return self._encoder.encode(line) + b"\n"


def _loss_fields(loss: Loss) -> dict[str, Any]:
    return {
        "of_boot": loss.of_boot,
        "cause": loss.cause,
        "detail": loss.detail,
        "lost_lines": loss.lost_lines,
        "first_seq": loss.first_seq,
        "last_seq": loss.last_seq,
        "lost_from": _utc(loss.since),
        "lost_until": _utc(loss.until),
    }
