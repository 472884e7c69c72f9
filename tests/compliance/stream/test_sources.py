from typing import Any

import pytest

from compliance.stream.options import LINE_BYTES, Job, JobError, Sink, Source, bounded, lines, no_connector

KAFKA = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "access-log", "startingOffsets": "earliest"}


class FakeSpark:
    """Keeps what the reader is told, and answers with a frame of another kind."""

    def __init__(self, frame):
        self.readStream = self
        self.said = {}
        self._frame = frame

    def format(self, kind):
        self.said["format"] = kind
        return self

    def options(self, **options):
        self.said |= options
        return self

    def load(self):
        return self._frame


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "schema", "row", "expected"),
    [
        (
            "kafka",
            "value binary, topic string, partition int, offset long",
            (bytearray(b"\xff{}"), "t", 3, 41),
            (b"\xff{}", "t/3", 41),
        ),
        ("kafka", "value binary, topic string, partition int, offset long", (None, "t", 3, 42), (b"", "t/3", 42)),
        ("pulsar", "value string, __topic string", ("{}", "persistent://t"), (b"{}", "persistent://t", None)),
        (
            "pulsar",
            "value binary, __topic string",
            (None, "persistent://t"),
            (b"", "persistent://t", None),
        ),
    ],
)
def test_options_reach_the_connector_as_they_are_and_its_messages_become_lines(spark, kind, schema, row, expected):
    fake: Any = FakeSpark(spark.createDataFrame([row], schema))
    job = Job(Source(kind, options=KAFKA), Sink(), "out")
    found = lines(fake, job)
    assert fake.said == {"format": kind, **bounded(job)}
    assert found.columns == ["value", "file", "line"]
    assert [tuple(one) for one in found.collect()] == [expected]


@pytest.mark.parametrize(
    ("kind", "options", "bound"),
    [
        ("kafka", {}, {"maxOffsetsPerTrigger": "3072"}),
        ("kafka", {"maxoffsetspertrigger": "7"}, {}),
        ("pulsar", {"admin.url": "http://b:8080"}, {"maxBytesPerTrigger": "3145728"}),
        ("pulsar", {"MaxBytesPerTrigger": "7"}, {}),
    ],
)
def test_a_batch_of_a_topic_is_bounded_unless_the_user_has_said_how(kind, options, bound):
    job = Job(Source(kind, options=options), Sink(), "out", batch_bytes=3 * 2**20)
    assert bounded(job) == options | bound


def test_a_batch_of_a_topic_has_a_message_at_least():
    tiny = Job(Source("kafka"), Sink(), "out", batch_bytes=LINE_BYTES - 1)
    assert bounded(tiny) == {"maxOffsetsPerTrigger": "1"}


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["kafka", "pulsar"])
def test_a_connector_that_is_not_there_is_named_with_the_remedy(spark, kind):
    with pytest.raises(JobError, match=rf"--source {kind}: its connector .* --spark spark\.jars\.packages=.*{kind}"):
        lines(spark, Job(Source(kind, options=KAFKA), Sink(), "out"))


def test_what_a_connector_itself_says_is_passed_on():
    assert no_connector("--source", "kafka", ValueError("no topic\nmore")) == "--source kafka: no topic"
