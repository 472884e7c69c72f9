import pytest

from loadgen.bench import frames
from loadgen.bench.peers import sluice
from loadgen.bench.rows import held
from loadgen.bench.rows.held import Held
from protocol.frames import FrameCutter


@pytest.mark.parametrize(
    "load", [Held("messages", 50_000, 1000, 2, 3, 0.05), Held("bytes", 50_000_000, 4000, 2, 3, 0.05)]
)
def test_streams_are_held_and_what_they_cost_is_measured(stage, monkeypatch, load):
    monkeypatch.setattr(held, "_SETTLE_S", 0.05)
    monkeypatch.setattr(held, "_LOGGED_S", 0.05)
    row = held.row(load)
    found = row.measure(stage, sluice.NAME)
    assert set(found) == {figure.key for figure in row.figures}
    assert found["share"] > 0 < found["free"]
    assert found["held"] > 0


def test_each_stream_of_a_connection_has_its_turn():
    load = Held("messages", 1, 100, 1, 3, 1.0)
    first, second, third, *rest = list(FrameCutter(1 << 20).feed(load.chunk))
    assert [first, second, third] == [frames.send_frame(100, number).frame for number in (1, 2, 3)]
    assert rest[:3] == [first, second, third]
    assert {len(frame) for frame in rest} == {len(first)}


def test_an_entry_costs_a_message_or_what_is_behind_its_command():
    assert Held("messages", 1, 1000, 1, 1, 1.0).cost == 1
    command = int.from_bytes(frames.send_frame(1000).frame[4:8], "big")
    assert Held("bytes", 1, 1000, 1, 1, 1.0).cost == 1000 - 8 - command


def test_all_streams_are_within_one_limit():
    total = held.limits(Held("bytes", 7, 100, 1, 1, 1.0))["namespaces"]["public/default"]
    assert total["publish_total"] == {"bytes": 7}
    assert total["publish"] == sluice.UNREACHED["namespaces"]["public/default"]["publish"]
