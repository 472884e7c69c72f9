from loadgen.bench import frames
from loadgen.bench.peers import sluice
from loadgen.bench.rows import access_log
from loadgen.bench.rows.access_log import Active
from protocol.frames import FrameCutter

LOAD = Active(connections=2, streams=3, size=1000, window_s=0.2)


def test_the_log_is_measured_beside_sluice_without_it(stage, monkeypatch):
    for name, value in (("_SETTLE_S", 0.05), ("_TIMES_A_SECOND", 100)):
        monkeypatch.setattr(access_log, name, value)
    row = access_log.row(LOAD)
    found = row.measure(stage, sluice.NAME)
    assert set(found) == {figure.key for figure in row.figures}
    assert min(found[key] for key in ("idle", "cpu", "without", "rate", "free")) > 0


def test_each_stream_of_a_connection_is_active():
    assert list(FrameCutter(1 << 20).feed(LOAD.chunk)) == [
        frames.send_frame(1000, number).frame for number in (1, 2, 3)
    ]
