"""The kinds of hostile connections: their frames, the way they read, their number, and the bounds on their cost.

A script gives what one connection says, in pieces, and pauses in between. Pieces go out as fast as they are taken.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

from google.protobuf.message import Message

from bench.hostile.broker import Mood, greeting_of
from protocol.commands import SIZES, encode, encode_with_payload
from protocol.pulsar_pb2 import (
    AuthData,
    BaseCommand,
    CommandAck,
    CommandAuthResponse,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandConnect,
    CommandFlow,
    CommandGetLastMessageId,
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    CommandPing,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
    KeyValue,
    MessageMetadata,
)

KB, MB = 1024, 1024 * 1024
FOREVER = 3600.0
"""Seconds: longer than any trial."""
HELD = "hostile/held"
"""A namespace whose topics are limited to one message a second."""
REJECTED = "hostile/rejected"
"""The same, in mode reject."""
ATTACKER, BLOCKED = "127.0.0.66", "127.0.0.77"
"""Whence hostile clients come; the second address is blocked."""

Script = Iterator[bytes | float]
"""Bytes to send, or seconds to wait."""

_METADATA = MessageMetadata(producer_name="hostile", sequence_id=1, publish_time=1).SerializeToString()
_HEADERS = b"\x0e\x01" + bytes(4) + len(_METADATA).to_bytes(4, "big") + _METADATA


@dataclass(frozen=True, slots=True)
class HostileKind:
    """A kind of hostile connections.

    Args:
        name: For the table.
        says: The script of the connection with a number.
        bound: MiB by which the memory of all of Sluice's processes may grow at most.
        connections: The number of connections at once.
        reads: Whether they read; a number is bytes a second of each.
        window: Bytes of their receive buffers; 0 leaves it to the system.
        returns: Whether who has said all, or was sent away, comes again.
        to: `clients` for the Pulsar port, `admin` for the admin address.
        address: Whence they come.
    """

    name: str
    says: Callable[[int], Script]
    bound: int
    connections: int = 1
    reads: bool | int = True
    window: int = 0
    returns: bool = False
    to: str = "clients"
    address: str = ATTACKER


def hello(mood: Mood = Mood.STANDIN, auth: bytes = b"") -> bytes:
    """Return a CONNECT for a broker of that mood."""
    return encode(CommandConnect(client_version=greeting_of(mood), protocol_version=20, auth_data=auth))


def topic(number: int, namespace: str = "hostile/plain", length: int = 0) -> str:
    """Return a topic's name of at least `length` characters; each number has another name."""
    return f"persistent://{namespace}/{number:0>{max(1, length)}}"


def _many(make: Callable[[int], Message], at_once: int = 200, most: int | None = None) -> Script:
    """Commands made of the numbers from 1 on, several in one piece."""
    for first in count(1, at_once):
        if most is not None and first > most:
            return
        last = first + at_once if most is None else min(first + at_once, most + 1)
        yield b"".join(encode(make(number)) for number in range(first, last))


def _said(mood: Mood, *scripts: Script) -> Script:
    """A greeting, and then one script after the other."""
    yield hello(mood)
    for script in scripts:
        yield from script


def _lookup(length: int = 0, first: int = 0) -> Callable[[int], Message]:
    return lambda number: CommandLookupTopic(topic=topic(first + number, length=length), request_id=first + number)


def _subscribe(number: int, name: str, *, sub: str = "s", consumer: str = "c", identity: int = 0) -> CommandSubscribe:
    return CommandSubscribe(
        topic=name,
        subscription=sub,
        sub_type=CommandSubscribe.Shared,
        consumer_id=identity or number,
        request_id=number,
        consumer_name=consumer,
    )


def _send(producer: int, sequence: int, size: int = 100, messages: int = 1) -> bytes:
    return encode_with_payload(
        CommandSend(producer_id=producer, sequence_id=sequence, num_messages=messages), _HEADERS + bytes(size)
    )


def _deaf_lookups(mood: Mood) -> Callable[[int], Script]:
    return lambda _: _said(
        mood, _many(_lookup(), 500, 60_000), _many(_lookup(MB - 100, 100_000), 1, 800), iter([FOREVER])
    )


def _absent_producers(_: int) -> Script:
    def opening(number: int) -> Message:
        return CommandProducer(topic=topic(number, f"absent/{number:0>65536}"), producer_id=number, request_id=number)

    return _said(Mood.MUTE, _many(opening, 4, 60_000))


def _long_consumers(_: int) -> Script:
    def opening(number: int) -> Message:
        return _subscribe(number, topic(number), sub="s" * MB, consumer="c" * MB)

    return _said(Mood.STANDIN, _many(opening, 1, 100), iter([FOREVER]))


def _many_streams(mood: Mood) -> Callable[[int], Script]:
    def opening(number: int) -> Message:
        return CommandProducer(topic=topic(number, length=4000), producer_id=number, request_id=number)

    return lambda _: _said(mood, _many(opening, 50, 65_536), iter([FOREVER]))


def _half_connect(_: int) -> Script:
    whole = hello(auth=bytes(255 * KB))
    yield whole[: 128 * KB]
    yield FOREVER


def _large_connect(_: int) -> Script:
    yield hello(Mood.MUTE, auth=bytes(255 * KB)) + bytes(4)
    yield FOREVER


def _partial_command(_: int) -> Script:
    yield hello(Mood.MUTE)
    yield SIZES.pack(5 * MB, 5 * MB - 4) + b"\x08\x64" + bytes(512 * KB)
    yield FOREVER


@cache
def _held_and_half() -> bytes:
    """Three SENDs, and half of one of 4 MB: made once, as hundreds of connections send it."""
    whole = _send(1, 2, 4 * MB)
    return _send(1, 1) * 3 + whole[: len(whole) // 2]


def _partial_send(_: int) -> Script:
    yield hello() + encode(CommandProducer(topic=topic(7, HELD), producer_id=1, request_id=1))
    yield 0.3
    yield _held_and_half()
    yield FOREVER


def _command(kind: int, body: bytes) -> bytes:
    """A frame whose command has a body that no encoder would write."""
    size = len(body)
    length = (size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14 & 0x7F | 0x80, size >> 21)
    command = bytes((0x08, kind, kind << 3 & 0x7F | 0x82, kind >> 4, *length)) + body
    return SIZES.pack(len(command) + 4, len(command)) + command


def _redelivers(_: int) -> Script:
    frame = _command(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, b"\x08\x01" + b"\x12\x04\x08\x01\x10\x01" * 833_000)
    yield hello(Mood.MUTE)
    while True:
        yield frame


def _lacking(_: int) -> Script:
    """Message ids without a number: each says that it lacks two."""
    yield hello(Mood.MUTE) + _command(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, b"\x12\x00" * 30)
    yield _command(BaseCommand.SUBSCRIBE, b"\x52\x00" * 500_000)
    yield FOREVER


def _drip(_: int) -> Script:
    yield hello() + encode(CommandProducer(topic=topic(7, HELD), producer_id=1, request_id=1))
    yield 0.3
    whole = _send(1, 2, 4 * MB)
    yield _send(1, 1) * 3 + whole[:64]
    for at in range(64, len(whole), 2):
        yield whole[at : at + 2]


def _pings_one_by_one(_: int) -> Script:
    yield hello(Mood.DEAF)
    while True:
        yield encode(CommandPing())


def _pings(_: int) -> Script:
    yield hello()
    pings = encode(CommandPing()) * 5000
    while True:
        yield pings


def _unknown(_: int) -> Script:
    yield hello(Mood.MUTE)
    while True:  # type 100, with a request id and 5 MB of an unknown field
        yield SIZES.pack(5 * MB - 100, 5 * MB - 104) + b"\x08\x64" + bytes(5 * MB - 106)


def _acknowledgements(_: int) -> Script:
    yield hello(Mood.MUTE)
    frames = encode(CommandAck(consumer_id=1, ack_type=CommandAck.Individual)) * 11_000
    while True:
        yield frames


def _sends_of_nobody(_: int) -> Script:
    yield hello()
    frames = b"".join(_send(number, 1) for number in range(1000))
    while True:
        yield frames


def _limited_sends(namespace: str, size: int) -> Callable[[int], Script]:
    def says(number: int) -> Script:
        yield hello() + encode(CommandProducer(topic=topic(number, namespace), producer_id=1, request_id=1))
        yield 0.3
        for first in count(1, 100):
            yield b"".join(_send(1, first + each, size) for each in range(100))

    return says


def _short_writes(namespace: str) -> Callable[[int], Script]:
    """Small SENDs over a limit, in writes that a proxy reads without a look at its time."""

    def says(number: int) -> Script:
        yield hello() + encode(CommandProducer(topic=topic(number, namespace), producer_id=1, request_id=1))
        yield 0.3
        frame = _send(1, 1, 1)
        while True:
            yield frame * (4 * KB // len(frame) - 1)
            yield 0.02

    return says


def _flows(_: int) -> Script:
    yield hello() + encode(_subscribe(1, topic(1)))
    frames = b"".join(encode(CommandFlow(consumer_id=number % 2 + 1, message_permits=2**31)) for number in range(2000))
    while True:
        yield frames


def _topic_lists(number: int) -> Script:
    def listing(request: int) -> Message:
        return CommandGetTopicsOfNamespace(request_id=request, namespace=f"hostile/n{number}-{request}")

    return _said(Mood.MUTE, _many(listing))


def _schema_questions(_: int) -> Script:
    return _said(Mood.MUTE, _many(lambda number: CommandGetSchema(topic=topic(number, length=4000), request_id=number)))


def _partitions(mood: Mood) -> Callable[[int], Script]:
    return lambda _: _said(
        mood, _many(lambda number: CommandPartitionedTopicMetadata(topic=topic(number), request_id=number))
    )


def _last_ids(_: int) -> Script:
    return _said(Mood.MUTE, _many(lambda number: CommandGetLastMessageId(consumer_id=number, request_id=number)))


def _producer_churn(number: int) -> Script:
    yield hello()
    for round_ in count(1):
        name = topic(round_, length=1000)
        yield (
            encode(CommandProducer(topic=f"{name}-{number}", producer_id=1, request_id=2 * round_))
            + _send(1, 1)
            + encode(CommandCloseProducer(producer_id=1, request_id=2 * round_ + 1))
        )


def _debts(number: int) -> Script:
    """A batch over the limit on ever new topics: each owes for a quarter of an hour when its producer has gone."""
    yield hello()
    for first in count(1, 100):
        ids = range(first, first + 100)
        names = {each: topic(each, HELD, 300) + f"-{number}" for each in ids}
        yield b"".join(
            encode(CommandProducer(topic=name, producer_id=each, request_id=2 * each)) for each, name in names.items()
        )
        yield 0.3
        yield b"".join(
            _send(each, 1, messages=1000) + encode(CommandCloseProducer(producer_id=each, request_id=2 * each + 1))
            for each in ids
        )
        yield 0.1


def _schemas(_: int) -> Script:
    """A schema with as many properties as a megabyte holds."""
    yield hello(Mood.MUTE)
    yield _command(BaseCommand.PRODUCER, _long_field(0x3A, b"\x2a\x04\x0a\x00\x12\x00" * 170_000))
    yield FOREVER


def _long_field(tag: int, value: bytes) -> bytes:
    size = len(value)
    return bytes((tag, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14)) + value


def _consumer_churn(namespaces: bool) -> Callable[[int], Script]:  # noqa: FBT001 - one of two scripts
    def says(number: int) -> Script:
        yield hello()
        for first in count(1, 50):
            piece = bytearray()
            for round_ in range(first, first + 50):
                namespace = f"hostile/n{number}-{round_}" if namespaces else "hostile/plain"
                name = topic(round_, namespace, 1000) + f"-{number}"
                opening = _subscribe(2 * round_, name, consumer=f"{round_:0>500}", identity=1)
                piece += encode(opening) + encode(CommandFlow(consumer_id=1, message_permits=1))
                piece += encode(CommandCloseConsumer(consumer_id=1, request_id=2 * round_ + 1))
            yield bytes(piece)

    return says


def _slow_reader(number: int) -> Script:
    name = topic(number, "hostile/slow")
    yield (
        hello()
        + encode(CommandProducer(topic=name, producer_id=1, request_id=1))
        + encode(_subscribe(2, name))
        + encode(CommandFlow(consumer_id=2, message_permits=100_000))
    )
    yield 0.3
    for first in count(1, 10):
        yield b"".join(_send(1, first + each, 64 * KB) for each in range(10))


def _properties(_: int) -> Script:
    bag = [KeyValue(key=f"k{number}", value="v" * 1000) for number in range(1000)]

    def asking(number: int) -> Message:
        return CommandLookupTopic(topic=topic(number), request_id=number, properties=bag)

    return _said(Mood.MUTE, _many(asking, 1))


def _auth_responses(_: int) -> Script:
    answer = CommandAuthResponse(client_version="hostile", response=AuthData(auth_data=bytes(64 * KB)))
    yield hello(Mood.MUTE)
    while True:
        yield encode(answer) * 8


def _blocked(_: int) -> Script:
    return _said(Mood.STANDIN, _many(lambda number: CommandPartitionedTopicMetadata(topic="t", request_id=number)))


def _says(*pieces: bytes | float) -> Callable[[int], Script]:
    return lambda _: iter(pieces)


def _churning_connects(_: int) -> Script:
    yield hello()
    yield 0.02


def _busy(number: int) -> Script:
    """Small frames, questions, connections: some 25 commands a second of each connection, and a new one each 2 s."""
    yield (number % 97) / 100
    yield hello(Mood.MUTE)
    for round_ in range(10):
        asked = CommandPartitionedTopicMetadata(topic=topic(round_), request_id=round_)
        yield encode(CommandPing()) * 3 + encode(_lookup(first=100)(round_)) + encode(asked)
        yield 0.2


def _asking_for_streams(_: int) -> Script:
    while True:
        yield b"GET /sluice/streams?limit=10000 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


_DEAF: dict[str, Any] = {"reads": False, "window": 2 * KB}
"""A client that never reads."""

KINDS = (
    HostileKind(
        "deaf reader, 60,000 lookups and 800 of 1 MB", _deaf_lookups(Mood.STANDIN), 64, reads=False, window=2 * KB
    ),
    HostileKind("lookups nobody answers, then 800 of 1 MB", _deaf_lookups(Mood.MUTE), 64, **_DEAF),
    HostileKind("24 deaf readers that look up", _deaf_lookups(Mood.STANDIN), 128, 24, **_DEAF),
    HostileKind("producers with names of 64 KiB, not answered", _absent_producers, 64),
    HostileKind("100 consumers with names of 1 MB", _long_consumers, 64),
    HostileKind("65,536 producers with names of 4 KB", _many_streams(Mood.STANDIN), 288),
    HostileKind("the same, not answered", _many_streams(Mood.MUTE), 288),
    HostileKind("half a CONNECT of 256 KiB", _half_connect, 384, 5000),
    HostileKind("CONNECT of 255 KiB, to a mute broker", _large_connect, 384, 2000),
    HostileKind("CONNECT, then nothing", _says(hello(), FOREVER), 64, 2000),
    HostileKind("nothing at all", _says(FOREVER), 96, 5000),
    HostileKind("512 KiB of a command of 5 MB", _partial_command, 384, 1500),
    HostileKind("half a held SEND of 4 MB", _partial_send, 384, 400),
    HostileKind("PINGs without reading", _pings, 64, 10, **_DEAF),
    HostileKind("unknown commands of 5 MB", _unknown, 128, 10),
    HostileKind("unknown commands of 5 MB, to a deaf broker", lambda n: _to(Mood.DEAF, _unknown(n)), 128, 10),
    HostileKind("acknowledgements, 250 KiB at a time", _acknowledgements, 96, 31),
    HostileKind("SENDs of nobody", _sends_of_nobody, 64, 10),
    HostileKind("SENDs that are held", _limited_sends(HELD, 1000), 192, 500),
    HostileKind(
        "SENDs that are rejected, without reading", _limited_sends(REJECTED, 10), 96, 20, reads=False, window=2 * KB
    ),
    HostileKind("the smallest SENDs that are rejected, 4 KB at a time", _short_writes(REJECTED), 96, 60),
    HostileKind("the smallest SENDs that are held, 4 KB at a time", _short_writes(HELD), 96, 60),
    HostileKind("FLOWs", _flows, 64, 10),
    HostileKind("questions for a namespace's topics, not answered", _topic_lists, 96, 20),
    HostileKind("questions for schemas, not answered", _schema_questions, 96, 20),
    HostileKind(
        "questions for partitions, without reading", _partitions(Mood.STANDIN), 96, 20, reads=False, window=2 * KB
    ),
    HostileKind("questions for partitions, to a deaf broker", _partitions(Mood.DEAF), 96, 20),
    HostileKind("questions for last messages, not answered", _last_ids, 96, 20),
    HostileKind("producers that come and go, of random topics", _producer_churn, 128, 20),
    HostileKind("debts of ever new topics", _debts, 384, 20),
    HostileKind("schemas of a megabyte in small fields", _schemas, 64, 6, returns=True),
    HostileKind("consumers that come and go, of random topics", _consumer_churn(namespaces=False), 128, 20),
    HostileKind("consumers of random namespaces", _consumer_churn(namespaces=True), 128, 20),
    HostileKind("consumers that read 100 bytes a second", _slow_reader, 192, 50, reads=100, window=4 * KB),
    HostileKind("lookups with properties of 1 MB", _properties, 96, 10),
    HostileKind("AUTH_RESPONSEs of 64 KiB", _auth_responses, 64, 10),
    HostileKind("blocked clients that ask", _blocked, 64, 200, reads=False, window=2 * KB, address=BLOCKED),
    HostileKind("connections that close at once", _says(), 64, 200, returns=True),
    HostileKind("connections that greet and close", _churning_connects, 64, 200, returns=True),
    HostileKind("busy connections of one address", _busy, 96, 1000, returns=True),
    HostileKind("requests for all streams, without reading", _asking_for_streams, 96, 64, reads=False, to="admin"),
    HostileKind("a held SEND of 4 MB, two bytes at a time", _drip, 96, 30),
    HostileKind("PINGs one by one, to a deaf broker", _pings_one_by_one, 96, 30),
    HostileKind("commands that lack what they must have", _lacking, 64, 6, returns=True),
    HostileKind(
        "a CONNECT without its version", _says(SIZES.pack(10, 6) + b"\x08\x02\x12\x02\x20\x14"), 64, 50, returns=True
    ),
    HostileKind("messages wanted again, in 5 MB", _redelivers, 128, 4),
    HostileKind("a broker that answers what nobody asked", _says(hello(Mood.CHATTY), FOREVER), 64, 5),
    HostileKind("a broker that never ends a command of 4 MB", _says(hello(Mood.BREATHLESS), FOREVER), 384, 400),
)


def _to(mood: Mood, script: Script) -> Script:
    """A script with another broker."""
    next(script)
    yield hello(mood)
    yield from script
