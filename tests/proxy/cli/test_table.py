"""The table, for a terminal or as plain text."""

import io
import json

import pytest
from rich.cells import cell_len
from rich.console import Console

from proxy.cli.top_fit import distinct_parts, fitted
from proxy.cli.top_view import (
    Drawing,
    FleetAnswer,
    FleetLimitAnswer,
    HolderAnswer,
    MemberAnswer,
    Poll,
    ProxyLook,
    ProxyLooks,
    QuotaAnswer,
    ShareAnswer,
    Shown,
    View,
    Waiting,
    as_json,
    fleet_tables,
    plain,
    show,
)
from tests.proxy.console_states import poll, state

HELD = state(
    held_messages=1200,
    held_bytes=120_000,
    held_for_ms=3200.0,
    offered_messages=300,
    passed_messages=100,
    waits_on=Waiting("topic", "persistent://acme/shop/orders", 100.0, None, 250.0),
)
FREE = state(stream_id=2, topic="persistent://acme/shop/returns", producer_name="\x1b[31mred", passed_messages=50)
VIEW = View("12:00:00 127.0.0.1:8080", "held", 20)


def looked(now: Poll, before: Poll | None = None, proxy: str = "127.0.0.1:8080") -> ProxyLook:
    return ProxyLook(proxy, now, before)


def looks(*others: ProxyLook, left_out: int = 0, silent: tuple[str, ...] = ()) -> ProxyLooks:
    before = poll(1000, state(), state(stream_id=2, topic=FREE.topic))
    return ProxyLooks([looked(poll(2000, FREE, HELD, left_out=left_out), before), *others], [*silent])


def test_plain_text_is_aligned_and_whole() -> None:
    lines = plain(show(looks(), VIEW)).splitlines()
    assert lines == [
        "12:00:00 127.0.0.1:8080   2 streams, 1 held · 1,200 messages, 120 kB held · offered 300/s · passed 150/s",
        "topic              way  who          client           offered/s  passed/s   held   bytes  since  waits on",
        "acme/shop/orders   pub  p            192.0.2.7:40001        300       100  1,200  120 kB   3.2s  topic 100/s",
        "acme/shop/returns  pub  \\x1b[31mred  192.0.2.7:40001          0        50      0     0 B",
    ]


def test_plain_text_is_aligned_by_cells() -> None:
    wide = state(stream_id=3, producer_name="日本語の製造者")
    shown = show(ProxyLooks([looked(poll(2000, FREE, wide))], []), VIEW)
    _, title, *rows = plain(shown).splitlines()
    begins = {cell_len(row[: row.index("192.0.2.7")]) for row in rows}
    assert begins == {cell_len(title[: title.index("client")])}


def test_rows_are_as_many_as_wanted_and_sums_are_over_all() -> None:
    shown = show(looks(), View("t", "held", 1))
    assert [cells[0] for cells in shown.cells] == ["acme/shop/orders"]
    assert "2 streams, 1 held" in shown.heading[0]
    assert "passed 150/s" in shown.heading[0]


def test_what_the_answer_leaves_out_is_said() -> None:
    shown = show(looks(left_out=90_000), VIEW)
    assert "90,002 streams" in shown.heading[0]
    assert shown.heading[1].startswith("rates and rows without 90,000 streams")


def test_what_is_rejected_stands_in_the_sums_if_there_is_any() -> None:
    assert "rejected" not in show(looks(), VIEW).heading[0]
    now = poll(2000, state(rejected_messages=30))
    assert "rejected 30/s" in show(ProxyLooks([looked(now, poll(1000, state()))]), VIEW).heading[0]


def test_a_terminal_gets_the_same_cells_within_its_width() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    console.print(Drawing(show(looks(), VIEW), problem="no answer"))
    text = out.getvalue()
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "1,200" in text
    assert "no answer" in text
    assert "\x1b[31m" not in text


def drawn(shown: Shown, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=width, color_system=None).print(Drawing(shown))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def busy(number: int) -> Poll:
    limit = Waiting("tenant", "free-01", 100.0, None, 250.0)
    streams = [
        state(
            stream_id=each,
            topic=f"persistent://free-{each:02}/web/pages",
            producer_name=f"standin-179605646{number}450-{each}",
            client_address=f"192.0.2.{number}:4000{each}",
            offered_messages=12_345,
            passed_messages=1_234,
            held_messages=11_111,
            held_bytes=11_111_000,
            held_for_ms=3200.0,
            waits_on=limit,
        )
        for each in range(3)
    ]
    return poll(2000, *streams)


def busy_looks(*proxies: str) -> ProxyLooks:
    before = poll(1000, *(state(stream_id=each, topic=f"persistent://free-{each:02}/web/pages") for each in range(3)))
    return ProxyLooks([looked(busy(number), before, proxy) for number, proxy in enumerate(proxies)])


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("proxies", [["127.0.0.1:8080"], ["127.0.0.1:8080", "127.0.0.1:8081"]], ids=["one", "two"])
def test_numbers_are_whole_and_names_are_cut_in_the_middle(width: int, proxies: list[str]) -> None:
    lines = drawn(show(busy_looks(*proxies), View(f"12:00:00 {', '.join(proxies)}", "held", 20)), width)
    assert max(map(len, lines)) <= width
    titles = next(line for line in lines if "topic" in line)
    assert titles.split()[-7:] == ["offered", "passed", "held", "bytes", "since", "waits", "on"]
    rows = lines[lines.index(titles) + 1 :]
    assert len(rows) == 3 * len(proxies)
    for row in rows:
        assert " 12,345 " in row
        assert " ".join(row.split()).partition(" 12,345 ")[2].startswith("1,234 11,111 11.1 MB 3.2s tenant")
        assert row.endswith(" 100/s"), "the value of a limit is a number, too"
    if width == 120 or len(proxies) == 1:
        assert all(" stan" in row for row in rows)
    if len(proxies) == 2:
        assert {row.split()[0] for row in rows} == {"…:8080", "…:8081"}
    sums = " · ".join(lines[: lines.index(titles)])
    assert f"offered {12_345 * 3 * len(proxies):,}/s · passed {1_234 * 3 * len(proxies):,}/s" in sums


def test_live_table_is_no_higher_than_the_terminal() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=6, color_system=None)
    console.print(Drawing(show(busy_looks("127.0.0.1:8080", "127.0.0.1:8081"), VIEW), height=6))
    assert len(out.getvalue().splitlines()) == 6


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["127.0.0.1:8080", "127.0.0.1:8081"], ["…:8080", "…:8081"]),
        (["10.0.0.1:8080", "10.0.0.2:8080"], ["….1…", "….2…"]),
        (["sluice-0.sluice:8080", "sluice-1.sluice:8080"], ["…-0…", "…-1…"]),
        (["a:8080", "b:8080"], ["a…", "b…"]),
        (["a:1", "b:2"], ["a:1", "b:2"]),
        (["a:1"], ["a:1"]),
        (["a.b", "a.b.b"], ["….b", "….b.b"]),
    ],
)
def test_proxies_are_told_apart_by_what_differs(names: list[str], short: list[str]) -> None:
    assert list(distinct_parts(names).values()) == short


@pytest.mark.parametrize(
    ("words", "fits"),
    [
        ("tenant shop 25/s (50.0% of 50/s)", "tenant shop 25/s"),
        ("tenant shopping-cart 25/s (50.0% of 50/s)", "tenant shoppi… 25/s"),
        ("topic 110/s (10/s + published)", "topic 110/s"),
        ("topic 110/s", "topic 110/s"),
        ("observed: would hold 1,234", "observed: wo… 1,234"),
    ],
)
def test_value_of_a_limit_stays_whole(words: str, fits: str) -> None:
    cells: list[tuple[str, ...]] = [("t" * 60, words), ("t", "topic 1/s")]
    assert fitted(("topic", "waits on"), cells, 40).cells[0][1] == fits


def test_one_stream_is_no_streams() -> None:
    assert (
        show(ProxyLooks([looked(poll(1000, state()))]), VIEW).heading[0].startswith(f"{VIEW.title}   1 stream, 0 held")
    )


def test_several_proxies_are_one_table_in_order() -> None:
    other = looked(poll(500, state(held_messages=2000, producer_name="q")), proxy="10.0.0.2:8080")
    shown = show(looks(other, silent=("10.0.0.3:8080: no answer",)), VIEW)
    assert shown.columns[0] == "proxy"
    assert [(cells[0], cells[3]) for cells in shown.cells] == [
        ("10.0.0.2:8080", "q"), ("127.0.0.1:8080", "p"), ("127.0.0.1:8080", "\\x1b[31mred"),
    ]  # fmt: skip
    assert "3 streams, 2 held · 3,200 messages, 120 kB held" in shown.heading[0]
    assert shown.heading[1] == "10.0.0.3:8080: no answer"


def test_states_of_several_proxies_name_the_proxy() -> None:
    other = looked(poll(500, left_out=7), proxy="10.0.0.2:8080")
    assert show(looks(other), VIEW).heading[1].startswith("10.0.0.2:8080: rates and rows without 7 streams")


def test_json_has_the_rows_of_the_table() -> None:
    document = json.loads(as_json(looks(silent=("b: no answer",)), "held", 1))
    (stream,) = document["streams"]
    assert (stream["proxy"], stream["topic"], stream["held_messages"]) == ("127.0.0.1:8080", HELD.topic, 1200)
    assert (stream["passed_per_s"], stream["waits_on"]["level"]) == (100, "topic")
    assert [(each["proxy"], each["totals"]["streams"]) for each in document["proxies"]] == [("127.0.0.1:8080", 2)]
    assert document["unanswered"] == ["b: no answer"]


def test_json_has_no_control_characters_of_names() -> None:
    assert as_json(looks(), "held", 20).isprintable()


def test_without_streams_there_is_a_table_all_the_same() -> None:
    shown = show(ProxyLooks([looked(poll(1000))]), VIEW)
    assert shown.cells == []
    assert plain(shown).splitlines()[1].startswith("topic")


@pytest.mark.parametrize("name", ["[/x]", "[bold]x", "\x1b[2J", ""])
@pytest.mark.parametrize("limiter", ["publish topic persistent://acme/shop/{}", "dispatch subscription a {}", "{}"])
def test_names_in_fleet_tables_are_escaped(limiter: str, name: str) -> None:
    limiter = limiter.format(name)
    share, holder = ShareAnswer(limiter, "messages", 0.5, 1.0, None, 1), HolderAnswer(name, 0.5, 1.0, None)
    limits = [
        FleetLimitAnswer(
            limiter, "messages", QuotaAnswer(10, 1.0), members_disagree=False, unchanged_s=1.0, holders=[holder]
        )
    ]
    members = [MemberAnswer(name, 0.1, 1, version=name)]
    state = FleetAnswer(
        "f",
        "a",
        "leading",
        name,
        1,
        1,
        1.0,
        isolated=False,
        lease_ends=0,
        shares=[share],
        members=members,
        fleet_limits=limits,
    )
    written = io.StringIO()
    for table in fleet_tables(state):
        Console(file=written, width=200, highlight=False).print(table)
    shown = written.getvalue()
    assert shown.count(name.replace("\x1b", "\\x1b")) >= 4
    assert "\x1b" not in shown
