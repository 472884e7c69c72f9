"""The model's reader of commands, and Sluice's, held against the brokers' own: the same bytes, the same fields."""

import subprocess
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.commands import command_in, encode, read
from protocol.flow import FLOW, read_flow
from protocol.frames import SEND, ProtocolError
from protocol.pulsar_pb2 import BaseCommand, InvalidTopicName
from protocol.scanner import FrameScanner
from proxy.counters import Counters
from proxy.refusals import RefusedError
from proxy.session.commands import BETWEEN_BROKERS, NOT_OFFERED, ClientCommands
from proxy.session.streams import Opening, Streams
from tests.proxy.session.ids import commands as c
from tests.proxy.session.ids.adversary import KINDS, WORDS, Said, fields_of
from tests.proxy.session.ids.forms import FORMS, hidden
from tests.proxy.session.ids.lightproto import FieldList, Schema, Unreadable, frame, message, read_command, taken_apart
from tests.real.java_programs import java_program

pytestmark = [pytest.mark.real, pytest.mark.jdk]

NAMES = (
    *("PRODUCER", "SUBSCRIBE", "SEND", "FLOW", "UNSUBSCRIBE", "CLOSE_PRODUCER", "CLOSE_CONSUMER", "REDELIVER"),
    *("ACK", "SEEK", "LOOKUP", "PARTITIONED_METADATA", "GET_TOPICS", "PING", "FUTURE_1"),
)
_JAVA = {
    "id": ("ProducerId", "ConsumerId"),
    "request": ("RequestId",),
    "sequence": ("SequenceId",),
    "messages": ("NumMessages",),
    "permits": ("MessagePermits",),
    "topic": ("Topic",),
    "namespace": ("Namespace",),
    "subscription": ("Subscription",),
    "name": ("ProducerName", "ConsumerName"),
    "epoch": ("ConsumerEpoch",),
}
"""The model's name of a field, and Java's."""
_PROTOBUF = {
    "producer_id": "ProducerId",
    "consumer_id": "ConsumerId",
    "request_id": "RequestId",
    "topic": "Topic",
    "namespace": "Namespace",
    "subscription": "Subscription",
    "producer_name": "ProducerName",
    "consumer_name": "ConsumerName",
    "consumer_epoch": "ConsumerEpoch",
}
"""Protobuf's name of it, and Java's."""
TEXT = replace(WORDS, names=("", "loud"), subscriptions=("one", "two"))
"""Of `ED A0 80` Java makes other text than Python."""
_SHOWN = {KINDS[name] for name in NAMES} - {c.FUTURE[0]}
_KNOWN = dict.fromkeys((*range(2, 41), *range(50, 69)), Schema()) | c.SCHEMAS | c.OTHERS
"""All types that the broker knows."""
Read = tuple[int, dict[str, str]] | None
"""A command's type and fields; None if it cannot be read."""


def read_by_broker(commands: Iterable[bytes]) -> list[Read]:
    lines = "\n".join(command.hex() for command in commands)
    done = subprocess.run(
        java_program("ReadCommands"), input=lines, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [_parsed(line) for line in done.stdout.splitlines()]


def _parsed(line: str) -> Read:
    if line == "none":
        return None
    kind, *fields = line.split(" ")
    return int(kind), dict(field.split("=") for field in fields)


def _as_java(value: str | int) -> str:
    """Text may hold whatever would end a line."""
    return '"' + value.encode().hex() if isinstance(value, str) else str(value)


def changed(random: Random, command: bytes) -> bytes:
    """With one byte changed."""
    place = random.randrange(len(command))
    return command[:place] + bytes([random.randrange(256)]) + command[place + 1 :]


# ---- the model's reader


def test_the_model_reads_every_form_as_brokers_do() -> None:
    """Twisted forms, and each with one byte changed: where brokers read on, they read the same."""
    random = Random(27)
    whole = [_twisted(random, random.choice(NAMES)) for _ in range(4000)]
    commands = [*whole, *(changed(random, command) for command in whole if command)]
    theirs = [reading if reading is not None and reading[0] in _SHOWN else None for reading in read_by_broker(commands)]
    different = [
        (command.hex(), ours, reading)
        for command, reading in zip(commands, theirs, strict=True)
        if (ours := _read_by_model(command, reading)) != reading
    ]
    assert different == []
    assert {reading[0] for reading in theirs if reading is not None} == _SHOWN


def _twisted(random: Random, name: str) -> bytes:
    command = Said(name, fields_of(random, name, TEXT), random.choice(("", *FORMS)), fields_of(random, name, TEXT))
    return taken_apart(command.encoded())[0]


def _read_by_model(command: bytes, theirs: Read) -> Read:
    """Of what the broker shows; what is not there has its default."""
    try:
        kind, fields = read_command(command, _KNOWN)
    except Unreadable:
        return None
    if kind not in _SHOWN:
        return None
    known: dict[str, Any] = ({"messages": 1} if kind == c.SEND else {}) | fields
    shown = {"NumMessages": _signed(known)} if kind == c.SEND else {}
    shown |= {"MessagePermits": _signed(known)} if kind == c.FLOW else {}
    names = {java: name for name, javas in _JAVA.items() for java in javas}
    their_fields = theirs[1] if theirs is not None else {}
    return kind, {java: shown.get(java) or _as_java(known.get(names[java], "")) for java in their_fields}


def _signed(fields: dict[str, Any]) -> str:
    """Java's numbers of 32 bits have a sign."""
    number: int = fields["permits"] if "permits" in fields else fields["messages"]
    return str(number - 2**32 if number >= 2**31 else number)


# ---- Sluice's reader


class Believed:
    """What Sluice reads of a client's frame, by its own handlers, and what of it goes on to the broker."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(ClientCommands, "_HANDLERS", dict.fromkeys(ClientCommands._HANDLERS, self._followed))
        nobody: Any = None
        lookups: Any = SimpleNamespace(names_fleet=lambda _command: False)
        requests: Any = SimpleNamespace(of_transactions=0)
        self._commands = ClientCommands(nobody, requests, nobody, lookups, lambda _refusal: None, Counters())
        self._fields: dict[str, str] = {}

    def read(self, whole: bytes) -> tuple[Read, bytes]:
        """None if it is refused, or ends the connection."""
        scanner, self._fields = FrameScanner(SEND, 2**20), {}
        try:
            data, (piece,) = scanner.cut(whole)
            if piece.kind == SEND:
                self._fields = {"ProducerId": str(piece.owner % 2**64)}
                self._fields |= {"NumMessages": str(piece.messages)} if piece.messages > 1 else {}
                return (SEND, self._fields), command_in(data)
            handle = self._flow if piece.kind == FLOW else self._commands.handle
            goes = handle(piece.kind, command_in(data), data)
        except ProtocolError:
            goes = None
        return (None, b"") if goes is None else ((piece.kind, self._fields), command_in(goes))

    def _followed(self, _commands: ClientCommands, command: Any) -> bytes:
        if isinstance(command, Opening):
            Streams.name_of(command)
        elif hasattr(command, "topic") and not isinstance(command.topic, str):
            raise RefusedError(InvalidTopicName, "lookups and admission read it")
        values = {java: getattr(command, name) for name, java in _PROTOBUF.items() if hasattr(command, name)}
        optional = {java: "" for name, java in _PROTOBUF.items() if java in values and not command.HasField(name)}
        self._fields = {java: _as_java(value) for java, value in (values | optional).items() if _is_said(value)}
        return encode(command)

    def _flow(self, _kind: int, command: bytes, whole: bytes) -> bytes:
        """As `DataPath.ask`, whose consumers only a session has."""
        consumer_id, permits = read_flow(command)
        if consumer_id < 0:
            flow = read(command)
            consumer_id, permits, whole = flow.consumer_id, flow.message_permits, encode(flow)
        self._fields = {"ConsumerId": str(consumer_id)} | ({"MessagePermits": str(permits)} if permits < 2**31 else {})
        return whole


def _is_said(value: Any) -> bool:
    """Namespaces may be no text: whoever lists their topics gets what the broker makes of them."""
    return not isinstance(value, bytes)


def test_what_sluice_reads_is_what_brokers_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every type, in every form, hidden in every other, and with one byte changed; or it is refused."""
    random, believed = Random(28), Believed(monkeypatch)
    readings: list[tuple[bytes, Read, bytes]] = []
    for _ in range(6000):
        command = _any_type(random)
        readings += [(variant, *believed.read(frame(variant))) for variant in (command, changed(random, command))]
    went = [(command, ours, goes) for command, ours, goes in readings if ours is not None]
    different = [
        (command.hex(), ours, theirs)
        for (command, ours, _goes), theirs in zip(went, read_by_broker(goes for *_, goes in went), strict=True)
        if theirs is not None and not _agree(ours, theirs)
    ]
    assert different == []
    assert {ours[0] for _command, ours, _goes in went if ours is not None} == set(
        _KINDS
    ) - BETWEEN_BROKERS - NOT_OFFERED
    assert len(readings) / 5 < len(went) < len(readings) * 4 / 5, "much is refused, and much is not"


_KINDS = (*BaseCommand.Type.values(), c.FUTURE[0])
_TAKEN = tuple(kind for kind in _KINDS if kind not in BETWEEN_BROKERS | NOT_OFFERED)
"""All others end the connection; they are hidden in these."""
_NAME_OF = {kind: name for name, kind in KINDS.items()}


def _any_type(random: Random) -> bytes:
    kind = random.choice(_TAKEN)
    fields, decoy = _any_fields(random, kind), _any_fields(random, kind)
    twist = random.choice(("", *FORMS, "hidden"))
    if twist == "hidden":
        return hidden(random.choice(_KINDS), kind, fields, decoy)
    return FORMS[twist](kind, fields, decoy) if twist else message([(1, kind), (kind, fields)])


def _any_fields(random: Random, kind: int) -> FieldList:
    if kind in _NAME_OF and kind not in c.FUTURE:
        fields = fields_of(random, _NAME_OF[kind])
        return [(n, v.encode(errors="surrogateescape") if isinstance(v, str) else v) for n, v in fields]
    if kind == BaseCommand.WATCH_TOPIC_LIST:
        return [(1, random.choice((1, 2**64 - 1))), (2, random.choice((0, 7))), (3, b"t/n"), (4, b".*")]
    if kind == BaseCommand.GET_OR_CREATE_SCHEMA:
        return [(1, random.choice((1, 2**64 - 1))), (2, b"t"), (3, [(1, b"s"), (3, b"{}"), (4, random.randrange(3))])]
    values = (1, 2, 2**64 - 1, "text", [(1, 1), (2, 1)])
    return [(number, random.choice(values)) for number in range(1, random.randrange(2, 7))]


def _agree(ours: Read, theirs: Read) -> bool:
    assert ours is not None
    assert theirs is not None
    fields = {name: value for name, value in ours[1].items() if name in theirs[1] or value != _as_java("")}
    return ours[0] == theirs[0] and fields.items() <= theirs[1].items()
