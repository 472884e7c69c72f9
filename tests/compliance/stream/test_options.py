import pytest

from compliance.stream.options import Job, JobError, Sink, Source, checked, pairs


def test_pairs_are_split_at_the_first_sign():
    assert pairs("--spark", ["a=b=c", "d="]) == {"a": "b=c", "d": ""}


@pytest.mark.parametrize("text", ["a", "=b", ""])
def test_what_is_no_pair_is_named(text):
    with pytest.raises(JobError, match=f"--spark {text}: must be KEY=VALUE"):
        pairs("--spark", [text])


@pytest.mark.parametrize(
    ("source", "sink", "message"),
    [
        (Source("tape", "log"), Sink(), "--source tape: must be one of files, kafka, pulsar"),
        (Source("files", "log"), Sink("csv"), "--sink csv: must be one of parquet, delta, iceberg"),
        (Source("files"), Sink(), "--source files: --access-log is for files, and files need it"),
        (Source("kafka", "log"), Sink(), "--source kafka: --access-log is for files, and files need it"),
        (Source("files", "log", {"a": "b"}), Sink(), "--source files: --source-option is for kafka and pulsar"),
        (Source("files", "log"), Sink("iceberg"), "--sink iceberg: --catalog"),
        (Source("files", "log"), Sink("delta", "lake"), "--sink delta: --catalog"),
        (Source("pulsar", options={"a": "b"}), Sink(), r"--source pulsar: .* --source-option admin\.url="),
    ],
)
def test_parts_that_do_not_fit_are_named_with_the_remedy(source, sink, message):
    with pytest.raises(JobError, match=message):
        checked(Job(source, sink, "out"))


def test_parts_that_fit_are_taken():
    for source, sink in (
        (Source("files", "log"), Sink()),
        (Source("pulsar", options={"admin.url": "b"}), Sink("iceberg", "c.n")),
        (Source("pulsar", options={"maxBytesPerTrigger": "1"}), Sink()),
    ):
        job = Job(source, sink, "out")
        assert checked(job) == job
