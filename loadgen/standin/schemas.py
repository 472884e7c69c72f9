"""Schemas as producers and consumers bring them: kept and numbered, never checked against each other."""

from struct import Struct

from loadgen.standin.refusal import Refused
from protocol.pulsar_pb2 import Schema, ServerError
from protocol.topic_name import TopicName

MOST_VERSIONS = 1000
_VERSION = Struct(">q")


class SchemaRegistry:
    """Versions of each topic's schema; the partitions of a topic have one schema."""

    def __init__(self) -> None:
        self._schemas: dict[str, list[Schema]] = {}

    def register(self, topic: TopicName, schema: Schema) -> bytes:
        """The schema's version, a new one if the topic had no such schema yet.

        Raises:
            Refused: IncompatibleSchema once a topic has MOST_VERSIONS.
        """
        versions = self._schemas.setdefault(topic.partitioned, [])
        if schema in versions:
            return _VERSION.pack(versions.index(schema))
        if len(versions) >= MOST_VERSIONS:
            raise Refused(ServerError.IncompatibleSchema, f"{topic.partitioned} has {MOST_VERSIONS} schemas already")
        versions.append(schema)
        return _VERSION.pack(len(versions) - 1)

    def find(self, topic: TopicName, version: bytes) -> tuple[Schema, bytes]:
        """A topic's schema and its version; without a version, the newest.

        Raises:
            Refused: TopicNotFound if there is none.
        """
        versions = self._schemas.get(topic.partitioned, [])
        index = len(versions) - 1
        if version:
            index = _VERSION.unpack(version)[0] if len(version) == _VERSION.size else -1
        if not 0 <= index < len(versions):
            raise Refused(ServerError.TopicNotFound, f"{topic.partitioned} has no such schema")
        return versions[index], _VERSION.pack(index)
