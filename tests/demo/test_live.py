import io

from rich.console import Console

from demo.watch import LivePicture, TopicRates, TopicStreams, plain_line, table

ROWS = [
    TopicRates("persistent://a/b/c", 3000, 1000, 500, 499, TopicStreams(1, 2, 1500, 500, "topic")),
    TopicRates("persistent://a/b/d", 200, 200, 200, 200, TopicStreams()),
]


def drawn(at_s: float) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(table(at_s, 30, ROWS))
    return out.getvalue()


def test_the_table_shows_each_rate_the_limit_and_what_is_held() -> None:
    line = next(line for line in drawn(7).splitlines() if "a/b/c" in line)
    assert [cell.strip() for cell in line.split("│")[1:-1]] == [
        *("a/b/c", "3,000", "1,000", "500", "499", "500", "1,500", "topic")
    ]


def test_the_table_says_how_far_the_load_is() -> None:
    assert "7 of 30 s" in drawn(7)
    assert "waiting for the last receipts" in drawn(31)


def test_the_plain_line_names_rate_limit_and_held() -> None:
    assert plain_line(7, ROWS) == "    7 s  a/b/c 500/s of 500, 1500 held | a/b/d 200/s of -, 0 held"


def test_without_a_terminal_a_line_comes_every_few_seconds() -> None:
    out = io.StringIO()
    with LivePicture(Console(file=out), 30) as picture:
        for half in range(40):
            picture.show(half / 2, ROWS)
    assert [line.split()[0] for line in out.getvalue().splitlines()] == ["2", "8", "12", "18"]


def test_on_a_terminal_the_table_is_drawn() -> None:
    out = io.StringIO()
    with LivePicture(Console(file=out, force_terminal=True, width=120), 30) as picture:
        picture.show(1, ROWS)
    assert "a/b/c" in out.getvalue()
