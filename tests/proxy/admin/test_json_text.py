"""The JSON of answers, which a terminal may show."""

import json
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from limiter.limiter import Stream, StreamName
from protocol.topic_name import parse_topic
from proxy import admin as admin_package
from proxy.admin import json_text
from proxy.admin.handlers import encoded_each
from proxy.admin.json_text import json_of, json_with
from proxy.observe.connection import Connection
from tests.proxy.admin_client import Admin

OBEYED = {"Cc", "Cf", "Zl", "Zp"}


def test_no_character_that_a_terminal_obeys_is_in_json() -> None:
    text = "".join(each for each in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(each) != "Cs")
    encoded = json_of({text: [text]})
    assert {unicodedata.category(each) for each in encoded.decode()}.isdisjoint(OBEYED)
    assert json.loads(encoded) == {text: [text]}
    assert json_of("größer 大 𝄞") == '"größer 大 𝄞"'.encode()


def test_escapes_are_the_same_wherever_a_text_is_cut() -> None:
    names = ["a" * 5000 + "\u202e", "\u202e" * 5000, "é\x7f" * 5000, "\U000e0001" * 5000]
    for name in names:
        encoded = json_of(name)
        assert json.loads(encoded) == name
        assert {unicodedata.category(each) for each in encoded.decode()}.isdisjoint(OBEYED)


def test_no_call_looks_at_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of C lets neither the loop nor another thread go on."""
    seen: list[int] = []

    class Watched:
        def search(self, piece: str) -> Any:
            seen.append(len(piece))
            return pattern.search(piece)

    pattern = json_text._IS_OBEYED
    monkeypatch.setattr(json_text, "_IS_OBEYED", Watched())
    text = json.dumps([f"{number} plain" for number in range(50_000)] + ["é" * 20_000], ensure_ascii=False)
    assert json_text.escaped(text.encode()) == text.encode()
    assert max(seen) <= 4096
    assert sum(seen) < 30_000, "plain pieces are passed over"


@pytest.mark.parametrize("members", [{}, {"left_out": 1, "next": None}])
@pytest.mark.parametrize("rows", [[], [{"name": "é"}], [1, "two"]])
def test_object_with_lists_is_json(members: dict[str, Any], rows: list[Any]) -> None:
    encoded = json_with(members, rows=map(json_of, rows), others=[])
    assert json.loads(encoded) == {**members, "rows": rows, "others": []}


async def test_long_values_are_more_work_than_short_ones(make_admin) -> None:
    admin: Admin = await make_admin()
    turns: dict[int, int] = {}
    for length in (10, 4000):
        turn = 0
        slices = admin.engine.slices
        run = slices._next_turn

        def counted(run: Any = run) -> None:
            nonlocal turn
            turn += 1
            run()

        slices._next_turn = counted  # type: ignore[method-assign]
        assert len(await encoded_each(slices, ["x" * length] * 1000)) == 1000
        slices._next_turn = run  # type: ignore[method-assign]
        turns[length] = turn
    assert turns[4000] > 5 * turns[10]


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
