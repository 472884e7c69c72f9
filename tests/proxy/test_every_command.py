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


def test_the_commands_are_those_of_the_protocol() -> None:
    assert KINDS
    assert {*KINDS} | ENTRIES == {*BaseCommand.Type.keys()}
    assert {*KINDS} > LIGHT
