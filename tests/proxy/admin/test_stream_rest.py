"""`GET /sluice/streams`, asked as one asks it."""

import asyncio
import json
from collections import Counter

import aiohttp
import pytest
from aiohttp import web

from limiter.levels import Client
from limiter.limiter import Stream, StreamName
from protocol.topic_name import parse_topic
from proxy.admin.routes import streams as stream_rest
from proxy.admin.routes.streams import LIMIT, WantedStreams, read_wanted
from proxy.observe.connection import Connection
from tests.proxy.admin_client import Admin

TOPIC = "persistent://public/default/t"


def open_streams(admin: Admin, number: int, producer_name: str = "") -> None:
    registry, now = admin.engine.registry, admin.engine.clock()
    for stream_id in range(number):
        name = StreamName("publish", "public", "default", TOPIC, stream_id, producer_name=producer_name)
        registry.open(Stream(name, (), lambda _stream, _entry: None, Connection(1)), parse_topic(TOPIC), now)


async def test_without_streams_the_view_is_empty(make_admin) -> None:
    admin: Admin = await make_admin()
    status, answer = await admin.ask("GET", "/sluice/streams")
    assert (status, answer["streams"], answer["left_out"]) == (200, [], 0)
    assert answer["totals"] == {"streams": 0, "held_streams": 0, "held_messages": 0, "held_bytes": 0}
    assert answer["monotonic_ms"] > 0


async def test_all_that_are_asked_for_are_shown_however_many_go_at_once(
    make_admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_rest, "_ORDERED_AT_ONCE", 2)
    monkeypatch.setattr(stream_rest, "_LOOKED_AT_ONCE", 5)
    admin: Admin = await make_admin()
    open_streams(admin, 8)
    _, answer = await admin.ask("GET", "/sluice/streams?limit=7")
    assert [stream["stream_id"] for stream in answer["streams"]] == list(range(7))
    assert (answer["left_out"], answer["totals"]["streams"]) == (1, 8)
    assert (await admin.ask("GET", "/sluice/streams?topic=t&tenant=public"))[1]["totals"]["streams"] == 8
    assert (await admin.ask("GET", "/sluice/streams?held=1"))[1]["totals"]["streams"] == 0


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            "hold=1",
            "'hold' is not known here: ask by held, topic, tenant, role, address, search, direction, level, name, set",
        ),
        ("held=yes", "held: 'yes' is neither 1 nor 0"),
        ("limit=10001", "limit: '10001' is not a number from 0 to 10000"),
        ("limit=-1", "limit: '-1' is not a number from 0 to 10000"),
        ("limit=1&limit=2", "a key occurs twice in the query: give each once"),
        ("topic=a//b", "topic: "),
        ("setting=tenant&name=a", "setting: ask by direction, setting and name, without level"),
    ],
)
async def test_a_bad_question_is_refused_with_what_would_be_right(make_admin, query: str, reason: str) -> None:
    admin: Admin = await make_admin()
    status, answer = await admin.ask("GET", f"/sluice/streams?{query}")
    assert status == 400
    assert answer["reason"].startswith(reason)


@pytest.mark.parametrize(
    ("target", "number"),
    [
        ("proxy", 3),
        ("tenant&name=public", 2),
        ("tenant&name=pub*", 2),
        ("tenant&name=*", 3),
        ("tenant&name=pub", 0),
        ("namespace&name=public/default", 2),
        ("partitioned_topic&name=public/default/t", 2),
        ("topic&name=public/default/t", 2),
        ("topic_of_namespace&name=other/x", 1),
        ("producer&name=p", 3),
        ("producer&name=q", 0),
        ("role&name=app", 3),
        ("address&name=192.0.2.0/24", 3),
        ("address&name=192.0.3.1", 0),
        ("exempt", 1),
    ],
)
async def test_streams_that_an_unset_value_is_for_are_counted(make_admin, target: str, number: int) -> None:
    admin: Admin = await make_admin()
    topics = (
        "public/default/t-partition-0",
        "public/default/t-partition-1",
        "other/x/t",
        "public/default/__change_events",
    )
    for stream_id, short in enumerate(topics):
        topic, connection = parse_topic(short), Connection(stream_id, "192.0.2.7:40001", client_role="app")
        name = StreamName("publish", topic.tenant, topic.namespace, topic.full, stream_id, producer_name="p")
        client = Client(producer_name="p", role="app", address="192.0.2.7")
        stream = Stream(name, (), lambda _stream, _entry: None, connection)
        admin.engine.registry.open(stream, topic, admin.engine.clock(), client)
    query = f"direction=publish&setting={target}&limit=0"
    assert (await admin.ask("GET", f"/sluice/streams?{query}"))[1]["totals"]["streams"] == number
    query = query.replace("publish", "dispatch")
    if not target.startswith("producer"):
        assert (await admin.ask("GET", f"/sluice/streams?{query}"))[1]["totals"]["streams"] == 0


def test_the_question_is_read() -> None:
    assert read_wanted({}) == WantedStreams(held=False, topic="", tenant="", most=LIMIT.default)
    query = {"held": "1", "topic": "a/b/c", "tenant": "a", "limit": str(LIMIT.most)}
    assert read_wanted(query) == WantedStreams(held=True, topic="persistent://a/b/c", tenant="a", most=LIMIT.most)
    assert read_wanted({"limit": "0"}).most == 0


@pytest.mark.parametrize("text", ["", "1.5", "1e3", "+5", "٣", "9" * 5000, " 5"])
def test_a_limit_is_a_plain_number(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number from 0 to"):
        read_wanted({"limit": text})


async def test_an_answer_is_made_piece_by_piece(make_admin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin: Admin = await make_admin()
    open_streams(admin, 10_000)
    pieces: list[int] = []
    write = web.StreamResponse.write

    async def watched(answer: web.StreamResponse, piece: bytes) -> None:
        pieces.append(len(piece))
        await write(answer, piece)

    monkeypatch.setattr(web.StreamResponse, "write", watched)
    _, answer = await admin.ask("GET", "/sluice/streams?limit=10000")
    assert len(answer["streams"]) == 10_000
    assert max(pieces) < 400_000 < sum(pieces)


async def test_who_does_not_take_an_answer_in_time_is_sent_away(make_admin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin: Admin = await make_admin(admin_access={"request_timeout": 0.1})
    open_streams(admin, 300)  # one piece is sent by aiohttp itself

    async def never(_answer: web.StreamResponse, _piece: bytes) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(web.StreamResponse, "write", never)
    with pytest.raises(aiohttp.ClientError):
        await admin.ask("GET", "/sluice/streams")


async def test_an_answer_has_so_many_bytes_and_counts_the_rest(make_admin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin: Admin = await make_admin()
    open_streams(admin, 300)
    _, whole = await admin.ask("GET", "/sluice/streams")
    size = len(json.dumps(whole["streams"], separators=(",", ":")))
    monkeypatch.setattr(stream_rest, "MOST_BYTES", size // 2)
    async with admin.client.get("/sluice/streams") as answer:
        text = await answer.read()
    page = json.loads(text)
    shown = len(page["streams"])
    assert (shown + page["left_out"], 140 <= shown <= 160, page["totals"]["streams"]) == (300, True, 300)
    assert len(text) <= size // 2 + 1_000
    assert page["streams"] == whole["streams"][:shown]


async def test_few_streams_with_long_names_are_shown_in_a_turn(make_admin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin: Admin = await make_admin()
    open_streams(admin, 200, "p" * 20_000)
    shown = Counter[int]()
    turn, loop, make = 0, asyncio.get_running_loop(), stream_rest.view

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(next_turn)

    def watched(stream: Stream, now: int) -> object:
        shown[turn] += 1
        return make(stream, now)

    monkeypatch.setattr(stream_rest, "view", watched)
    next_turn()
    assert len((await admin.ask("GET", "/sluice/streams"))[1]["streams"]) == 200
    assert max(shown.values()) <= 15
