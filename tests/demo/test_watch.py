import json
from pathlib import Path

import pytest
from rich.console import Console

import demo.watch
from demo.watch import LivePicture, Watch, last_line


class Picture(LivePicture):
    def __init__(self) -> None:
        super().__init__(Console(), 30)
        self.seen: list[float] = []

    def show(self, at_s: float, rows: object) -> None:
        self.seen.append(at_s)


@pytest.fixture
def live(tmp_path: Path) -> Path:
    return tmp_path / "live.jsonl"


def watch(live: Path) -> tuple[Watch, Picture]:
    picture = Picture()
    return Watch("127.0.0.1:1", live, ["t"], picture), picture


def test_only_whole_lines_count(live: Path) -> None:
    live.write_text('{"at_s": 1}\n{"at_s": 2}\n{"at_s')
    assert last_line(live) == {"at_s": 2}


@pytest.mark.parametrize("content", [None, "", '{"at_s"'])
def test_before_the_first_whole_line_there_is_none(live: Path, content: str | None) -> None:
    if content is not None:
        live.write_text(content)
    assert last_line(live) is None


def test_a_long_file_is_read_from_its_end(live: Path) -> None:
    line = json.dumps({"at_s": 1, "filler": "x" * 1000}) + "\n"
    live.write_text(line * 500 + '{"at_s": 9}\n')
    assert last_line(live) == {"at_s": 9}


def test_two_looks_at_once_are_one(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.watch, "fetch_streams", lambda _admin: [])
    live.write_text('{"at_s": 1, "topics": {}}\n')
    eye, picture = watch(live)
    eye.look()
    eye.look()
    assert picture.seen == [1]


def test_while_sluice_says_nothing_nothing_is_shown(live: Path) -> None:
    live.write_text('{"at_s": 1, "topics": {}}\n')
    eye, picture = watch(live)
    eye.look()
    assert picture.seen == []
