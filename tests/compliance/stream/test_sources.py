from typing import Any

import pytest

from compliance.stream.options import Job, JobError, Sink, Source
from compliance.stream.sources import lines, no_connector

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
            (bytearray(b"{}"), "t", 3, 41),
            ("{}", "t/3", 41),
        ),
        (
            "pulsar",
            "value binary, __topic string",
            (bytearray(b"{}"), "persistent://t"),
            ("{}", "persistent://t", None),
        ),
    ],
)
def test_options_reach_the_connector_as_they_are_and_its_messages_become_lines(spark, kind, schema, row, expected):
    fake: Any = FakeSpark(spark.createDataFrame([row], schema))
    found = lines(fake, Job(Source(kind, options=KAFKA), Sink(), "out"))
    assert fake.said == {"format": kind, **KAFKA}
    assert found.columns == ["value", "file", "line"]
    assert [tuple(one) for one in found.collect()] == [expected]


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["kafka", "pulsar"])
def test_a_connector_that_is_not_there_is_named_with_the_remedy(spark, kind):
    with pytest.raises(JobError, match=rf"--source {kind}: its connector .* --spark spark\.jars\.packages=.*{kind}"):
        lines(spark, Job(Source(kind, options=KAFKA), Sink(), "out"))


def test_what_a_connector_itself_says_is_passed_on():
    assert no_connector("--source", "kafka", ValueError("no topic\nmore")) == "--source kafka: no topic"
