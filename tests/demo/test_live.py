import io

from rich.console import Console

from demo.watch import LivePicture, TopicRates, TopicStreams

ROWS = [
    TopicRates("persistent://a/b/c", 3000, 1000, 500, 499, TopicStreams(1, 2, 1500, 500, "topic")),
    TopicRates("persistent://a/b/d", 200, 200, 200, 200, TopicStreams()),
]


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
