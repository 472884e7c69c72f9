"""The model's reader of commands, held against the one that brokers have: the same bytes, the same fields."""

import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from loadgen.real.jars import jars
from loadgen.real.java import require_java
from tests.proxy.identity import commands as c
from tests.proxy.identity.adversary import Said, fields_of
from tests.proxy.identity.forms import FORMS
from tests.proxy.identity.lightproto import Unreadable, read_command, taken_apart

pytestmark = [pytest.mark.real, pytest.mark.jdk]

SOURCE = Path(__file__).with_name("ReadCommands.java")
NAMES = (
    *("PRODUCER", "SUBSCRIBE", "SEND", "FLOW", "UNSUBSCRIBE", "CLOSE_PRODUCER", "CLOSE_CONSUMER"),
    *("REDELIVER", "PING", "FUTURE_1"),
)
SHOWN = {
    c.PRODUCER: ("id", "request", "topic", "name"),
    c.SUBSCRIBE: ("id", "request", "topic", "subscription", "name"),
    c.SEND: ("id", "sequence", "messages"),
    c.FLOW: ("id", "permits"),
    c.UNSUBSCRIBE: ("id", "request"),
    c.CLOSE_PRODUCER: ("id", "request"),
    c.CLOSE_CONSUMER: ("id", "request"),
    c.REDELIVER: ("id", "epoch"),
}
DEFAULTS = {"name": "", "messages": 1, "epoch": ""}


def test_the_model_reads_every_form_as_brokers_do() -> None:
    """Twisted forms, and each with one byte changed: where brokers read on, they read the same."""
    random = Random(27)
    commands = [command for _ in range(4000) for command in forms(random)]
    lines = "\n".join(command.hex() for command in commands)
    java = [require_java(), "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*", str(SOURCE)]
    done = subprocess.run(java, input=lines, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told = done.stdout.splitlines()
    different = [
        (command.hex(), ours, theirs)
        for command, theirs in zip(commands, told, strict=True)
        if (ours := read(command)) != theirs
    ]
    assert different == []
    assert len({line.split()[0] for line in told}) == len(SHOWN) + 1, "each kind, and unreadable ones"


def forms(random: Random) -> tuple[bytes, bytes]:
    name = random.choice(NAMES)
    said = Said(name, fields_of(random, name), random.choice(("", *FORMS)), fields_of(random, name))
    command = bytearray(taken_apart(said.encoded())[0])
    whole = bytes(command)
    if command:
        command[random.randrange(len(command))] = random.randrange(256)
    return whole, bytes(command)


def read(command: bytes) -> str:
    try:
        kind, fields = read_command(command, c.SCHEMAS | c.OTHERS)
    except Unreadable:
        return "none"
    if kind not in SHOWN:
        return "none"
    known: dict[str, Any] = DEFAULTS | fields
    values = [known[name] for name in SHOWN[kind]]
    return " ".join([str(kind), *map(_as_java, values, SHOWN[kind])])


def _as_java(value: Any, name: str) -> str:
    """Text may hold whatever would end a line; Java's numbers of 32 bits have a sign."""
    if isinstance(value, str):
        return '"' + value.encode().hex()
    is_signed = name in {"messages", "permits"} and value >= 2**31
    return str(value - 2**32 if is_signed else value)
