import msgspec

from accesslog.record import AnyLine
from bench.compliance_job import TOPICS, write_log


def test_a_log_has_the_given_number_of_a_proxys_lines(tmp_path):
    wanted = 5 * TOPICS + 3
    size = write_log(tmp_path / "log", wanted)
    (file,) = (tmp_path / "log").iterdir()
    lines = msgspec.json.Decoder(AnyLine).decode_lines(file.read_bytes())
    assert [line.seq for line in lines] == list(range(wanted))
    assert size == file.stat().st_size


def test_a_long_log_is_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.compliance_job.LINES_A_FILE", 10)
    write_log(tmp_path / "log", 25)
    assert [len(file.read_bytes().splitlines()) for file in sorted((tmp_path / "log").iterdir())] == [10, 10, 5]
