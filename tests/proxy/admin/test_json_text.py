"""The JSON of answers, which a terminal may show."""

import json
import sys
import unicodedata
from pathlib import Path

from limiter.limiter import Stream, StreamName
from protocol.topic_name import parse_topic
from proxy import admin as admin_package
from proxy.admin.json_text import json_of
from proxy.observe.connection import Connection
from tests.proxy.admin_client import Admin

OBEYED = {"Cc", "Cf", "Zl", "Zp"}


def test_no_character_that_a_terminal_obeys_is_in_json() -> None:
    text = "".join(each for each in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(each) != "Cs")
    encoded = json_of({text: [text]})
    assert {unicodedata.category(each) for each in encoded.decode()}.isdisjoint(OBEYED)
    assert json.loads(encoded) == {text: [text]}
    assert json_of("größer 大 𝄞") == '"größer 大 𝄞"'.encode()


async def test_streams_are_shown_without_controls_of_names(make_admin) -> None:
    admin: Admin = await make_admin()
    topic = "persistent://public/default/a\u009b2J\u202eb\x7f"
    name = StreamName("dispatch", "public", "default", topic, 1, "sub\u009b\u2066")
    registry, now = admin.engine.registry, admin.engine.clock()
    registry.open(Stream(name, (), lambda _stream, _entry: None, Connection(1)), parse_topic(topic), now)
    async with admin.client.get("/sluice/streams") as answer:
        text = await answer.text()
    assert {unicodedata.category(each) for each in text}.isdisjoint(OBEYED)
    assert json.loads(text)["streams"][0]["topic"] == topic


def test_all_answers_are_encoded_in_one_place() -> None:
    folder = Path(admin_package.__path__[0])
    encoders = [each.name for each in folder.rglob("*.py") if "msgspec.json.encode" in each.read_text()]
    assert encoders == ["json_text.py"]
