"""Whatever command a peer sends by thousands, a turn of the loop handles few of them."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from protocol.commands import SIZES
from protocol.pulsar_pb2 import BaseCommand
from proxy.session.data_path import MOST_COMMANDS
from proxy.slices import AT_ONCE, Work
from tests.proxy.conversation import World, publisher
from tests.proxy.wire import varint

COUNT = 1000
ENTRIES = {"SEND", "MESSAGE"}
"""Not commands to the data path: entries are charged, passed or held, and counted by `Work.ENTRIES`."""
LIGHT = {"ACK", "FLOW", "SEND_RECEIPT", "ACK_RESPONSE"}
"""Those that come as often as messages and take no longer are handled as they come."""
KINDS = sorted({*BaseCommand.Type.keys()} - ENTRIES)


def filled(message: Message) -> Message:
    """Set all required fields, of parts too."""
    for field in message.DESCRIPTOR.fields:
        if not field.is_required:
            continue
        if field.message_type is not None:
            filled(getattr(message, field.name)).SetInParent()
        elif field.enum_type is not None:
            setattr(message, field.name, field.enum_type.values[0].number)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            is_text = field.type == FieldDescriptor.TYPE_STRING
            setattr(message, field.name, "persistent://acme/shop/a" if is_text else b"a")
        else:
            setattr(message, field.name, 1)
    return message


def frame_of(kind: str) -> bytes:
    command = BaseCommand(type=kind)
    if kind.lower() in command.DESCRIPTOR.fields_by_name:
        filled(getattr(command, kind.lower())).SetInParent()
    content = command.SerializeToString()
    return SIZES.pack(len(content) + 4, len(content)) + content


def handled_in_turns(world: World, side: str, frame: bytes) -> list[int]:
    """Return how many of COUNT frames that come in one read are handled in each turn, until the session ends."""
    client, broker = publisher(world)
    (session,) = world.sessions
    path: Any = getattr(session.forwarding, "to_broker" if side == "client" else "to_client")
    handled, left = list[int](), COUNT

    def turned() -> None:
        nonlocal left
        now = 0 if path.is_over else len(path.backlog) // len(frame)
        if not path.is_over:
            handled.append(left - now)
        left = now

    peer = client if side == "client" else broker
    world.loop.turned = turned
    world.loop.run(peer.transport.receive, frame * COUNT)
    assert path.is_over or sum(handled) == COUNT
    return handled


@pytest.mark.parametrize("side", ["client", "broker"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_handles_few_commands(make_world: Callable[..., World], side: str, kind: str) -> None:
    """A session that ends for one of them handles no more."""
    handled = handled_in_turns(make_world(), side, frame_of(kind))
    if kind not in LIGHT:
        assert max(handled, default=0) <= AT_ONCE[Work.COMMANDS] + MOST_COMMANDS


LONG = 60 * 1024


def long_frame_of(kind: str) -> bytes:
    """Return the same with some thousand small fields, which a reader has to look at."""
    command = BaseCommand(type=kind)
    number = command.DESCRIPTOR.fields_by_name[kind.lower()].number
    body = filled(getattr(command, kind.lower())).SerializeToString() + (varint(90 << 3) + b"\0") * (LONG // 3)
    content = BaseCommand(type=kind).SerializeToString() + varint(number << 3 | 2) + varint(len(body)) + body
    return SIZES.pack(len(content) + 4, len(content)) + content


@pytest.mark.parametrize("side", ["client", "broker"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.lower() in BaseCommand.DESCRIPTOR.fields_by_name])
def test_a_turn_handles_few_long_commands(make_world: Callable[..., World], side: str, kind: str) -> None:
    """Each connection has several, all in one turn; each handled command fills a turn."""
    world, frame = make_world(), long_frame_of(kind)
    pairs = [publisher(world) for _ in range(8)]
    paths: list[Any] = [
        getattr(session.forwarding, "to_broker" if side == "client" else "to_client") for session in world.sessions
    ]
    handled, left = list[int](), 4 * len(pairs)

    def turned() -> None:
        nonlocal left
        now = sum(-(-len(path.backlog) // len(frame)) for path in paths)
        if not any(path.is_over for path in paths):
            handled.append(left - now)
        left = now

    def come() -> None:
        for client, broker in pairs:
            (client if side == "client" else broker).transport.receive(frame * 4)

    world.loop.turned = turned
    world.loop.run(come)
    if kind not in LIGHT:
        assert max(handled, default=0) <= 2


def test_the_commands_are_those_of_the_protocol() -> None:
    assert KINDS
    assert {*KINDS} | ENTRIES == {*BaseCommand.Type.keys()}
    assert {*KINDS} > LIGHT
