import os

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compliance import storage
from compliance.stream import log_file as module
from compliance.stream.ledger import DayFacts, FileFacts
from compliance.stream.log_file import NO_DAY, JobPlaces, name_of, read_log_file
from tests.compliance.planted import BEGIN, planted, write_file


@pytest.fixture
def read(tmp_path):
    def made(name, *lines):
        write_file(tmp_path / "log", name, lines)
        return read_log_file(str(tmp_path / "log" / name), str(tmp_path / "out"))

    return made


def table(tmp_path, name, day, file):
    return pq.ParquetFile(tmp_path / "out" / name / f"day={day}" / f"{file}.parquet").read().to_pylist()


def contents(folder):
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def over_midnight():
    log = planted("a", begin=BEGIN.replace(hour=23, minute=59, second=58))
    for _ in range(4):
        log.tick(1)
    return log


def test_a_file_becomes_one_of_its_name_for_each_day(tmp_path, read):
    lines = over_midnight().encoded()
    file_facts = read("a b.jsonl", *lines[:2], b"torn", *lines[2:])
    assert [(day, facts.rows, facts.malformed) for day, facts in file_facts.days.items()] == [
        ("2026-11-21", 6, 1),
        ("2026-11-22", 6, 0),
    ]
    first, second = (table(tmp_path, "rows", day, "a~20b") for day in file_facts.days)
    assert [(row["file"], row["line"], row["seq"]) for row in first] == [
        ("a b.jsonl", line, seq) for line, seq in ((1, 0), (2, 1), (4, 2), (5, 3), (6, 4), (7, 5))
    ]
    assert [row["line"] for row in second] == [8, 9, 10, 11, 12, 13]
    (torn,) = table(tmp_path, "malformed", "2026-11-21", "a~20b")
    assert (torn["file"], torn["line"], torn["text"]) == ("a b.jsonl", 3, "torn")
    facts = msgspec.json.decode((tmp_path / "out/_work/files/a~20b.json").read_bytes(), type=FileFacts)
    assert facts == file_facts


def test_a_file_that_is_read_again_gives_the_same(tmp_path, read):
    lines = [*over_midnight().encoded(), b"torn"]
    read("a.jsonl", *lines)
    before = contents(tmp_path / "out")
    read("a.jsonl", *lines)
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("size", [1, 100, 1000, 2**20])
def test_the_size_of_blocks_changes_nothing(tmp_path, read, monkeypatch, size):
    lines = [*over_midnight().encoded(), b"torn", b""]
    whole = read("a.jsonl", *lines)
    rows = table(tmp_path, "rows", "2026-11-22", "a")
    monkeypatch.setattr(module, "BLOCK_BYTES", size)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", size // 100)
    assert read("a.jsonl", *lines) == whole
    assert table(tmp_path, "rows", "2026-11-22", "a") == rows


def test_a_last_line_without_an_end_is_a_line(tmp_path, read):
    write_file(tmp_path / "log", "a.jsonl", [])
    (tmp_path / "log/a.jsonl").write_bytes(b"\n".join(planted("a", 1).encoded()))
    file_facts = read_log_file(f"{tmp_path}/log/a.jsonl", f"{tmp_path}/out")
    assert [facts.rows for facts in file_facts.days.values()] == [3]


def test_a_packed_file_has_the_rows_of_the_plain_one(tmp_path, read):
    lines = over_midnight().encoded()
    plain = read("plain.jsonl", *lines)
    packed = tmp_path / "log/packed.jsonl.zst"
    with pa.CompressedOutputStream(str(packed), "zstd") as stream:
        stream.write(b"\n".join(lines) + b"\n")
    file_facts = read_log_file(str(packed), f"{tmp_path}/out")
    assert (file_facts.name, file_facts.file, file_facts.days) == ("packed", "packed.jsonl.zst", plain.days)


@pytest.mark.parametrize("cut", [1, 5, 40, 4000])
def test_a_packed_file_that_is_cut_off_has_the_lines_before_it(read, tmp_path, cut):
    lines = planted("a", 300).encoded()
    codec = pa.Codec("zstd")
    frames = [bytes(codec.compress(b"".join(line + b"\n" for line in lines[at : at + 90]))) for at in range(0, 900, 90)]
    packed = tmp_path / "log/packed.jsonl.zst"
    packed.parent.mkdir()
    packed.write_bytes(b"".join(frames)[:-cut])
    whole, left = 0, sum(map(len, frames)) - cut
    for frame in frames:
        whole += len(frame) <= left
        left -= len(frame)
    (facts,) = read_log_file(str(packed), f"{tmp_path}/out").days.values()
    assert 90 * whole <= facts.rows < 90 * whole + 90
    *torn, last = table(tmp_path, "malformed", "2026-11-21", "packed")
    assert last["reason"].startswith("the file is cut off or damaged: ")
    assert last["line"] == facts.rows + len(torn) + 1
    assert facts.malformed == len(torn) + 1 <= 2


def test_a_packed_file_that_is_none_is_malformed(tmp_path):
    (tmp_path / "a.jsonl.zst").write_bytes(b"not packed at all")
    (facts,) = read_log_file(f"{tmp_path}/a.jsonl.zst", f"{tmp_path}/out").days.values()
    assert (facts.rows, facts.malformed) == (0, 1)


def test_file_without_a_record_has_a_day_and_an_empty_one_none(read, tmp_path):
    file_facts = read("torn.jsonl", b"torn")
    assert file_facts.days == {NO_DAY: DayFacts(malformed=1)}
    assert read("empty.jsonl").days == {}
    assert (tmp_path / "out/_work/files/empty.json").exists()


def test_a_file_has_no_facts_before_all_its_rows(tmp_path, monkeypatch):
    """A task that ends at any of its writes leaves a file that has not been read."""
    write_file(tmp_path / "log", "a.jsonl", [*over_midnight().encoded(), b"torn"])
    whole = storage.write
    places: list[str] = []

    def ends(most):
        def write(place, content):
            if len(places) == most:
                raise KeyboardInterrupt
            places.append(place)
            whole(place, content)

        return write

    for most in range(4):
        places.clear()
        monkeypatch.setattr(storage, "write", ends(most))
        with pytest.raises(KeyboardInterrupt):
            read_log_file(f"{tmp_path}/log/a.jsonl", f"{tmp_path}/out")
        assert not (tmp_path / "out/_work/files").exists()
    monkeypatch.setattr(storage, "write", ends(9))
    read_log_file(f"{tmp_path}/log/a.jsonl", f"{tmp_path}/out")
    assert (tmp_path / "out/_work/files/a.json").exists()


def test_names_are_valid_for_hadoop_and_spark_and_distinct():
    names = ["a", "a~20", "a b", "größe", "x" * 300, "x" * 299 + "y", "p=1-b_2.c"]
    made = [name_of(f"{name}.jsonl") for name in names]
    assert len(set(made)) == len(names)
    assert made[:4] == ["a", "a~7e20", "a~20b", "gr~c3~b6~c3~9fe"]
    assert made[-1] == "p=1-b_2.c"
    assert all(len(name) <= 200 for name in made)
    assert name_of("a.jsonl.zst") == "a"


def test_a_file_is_written_as_a_whole_and_over_another(tmp_path):
    for content in (b"one \xff\n", b"two"):
        storage.write(f"{tmp_path}/made/here/a", content)
        assert storage.read(f"{tmp_path}/made/here/a") == content
    assert storage.files(f"{tmp_path}/made/here") == [("a", 3)]
    assert (storage.files(f"{tmp_path}/nowhere"), storage.folders(f"{tmp_path}/nowhere")) == ([], [])


def test_of_a_full_disk_the_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("pathlib.Path.write_bytes", lambda *_: os.write(os.open("/dev/full", os.O_WRONLY), b"x"))
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/a'"):
        storage.write(f"{tmp_path}/a", b"x")


def test_places_are_those_of_the_page():
    places = JobPlaces("out")
    assert places.part("rows", "2026-11-21", "a") == "out/rows/day=2026-11-21/a.parquet"
