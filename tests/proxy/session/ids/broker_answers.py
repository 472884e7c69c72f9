"""What a broker writes: answers, and those to commands that have nothing to do with producers and consumers."""

from typing import Any

from tests.proxy.session.ids import commands as c
from tests.proxy.session.ids.lightproto import FieldList, command, frame, message, read_command


class Answers:
    """Writes a broker's answers.

    Attributes:
        out: What it has written, not yet sent.
    """

    def __init__(self) -> None:
        self.out: list[bytes] = []

    def _success(self, request: int) -> None:
        self.out.append(command(c.SUCCESS, [(1, request)]))

    def _error(self, request: int, kind: int, text: str) -> None:
        self.out.append(command(c.ERROR, [(1, request), (2, kind), (3, text)]))

    def _look_up(self, fields: dict[str, Any]) -> None:
        answer: FieldList = [(1, "pulsar://127.0.0.1:6651"), (3, c.CONNECT_THERE), (4, fields["request"])]
        failed: FieldList = [(3, c.FAILED_LOOKUP), (4, fields["request"]), (6, c.SERVICE_NOT_READY), (7, "no")]
        self.out.append(command(c.LOOKUP_RESPONSE, failed if fields["request"] % 3 == 2 else answer))

    def _count_partitions(self, fields: dict[str, Any]) -> None:
        self.out.append(command(c.PARTITIONED_METADATA_RESPONSE, [(1, 0), (2, fields["request"]), (3, 0)]))

    def _list_topics(self, fields: dict[str, Any]) -> None:
        self.out.append(command(c.GET_TOPICS_RESPONSE, [(1, fields["request"]), (2, "persistent://a/b/c")]))

    def _refuse(self, fields: dict[str, Any]) -> None:
        self._error(fields["request"], c.METADATA_ERROR, "not here")

    def _accept(self, fields: dict[str, Any]) -> None:
        self._success(fields["request"])

    def _pong(self, _fields: dict[str, Any]) -> None:
        self.out.append(command(c.PONG, []))

    def _ignore(self, _fields: dict[str, Any]) -> None:
        pass

    def _answer_from_the_future(self, kind: int, fields: dict[str, Any]) -> None:
        for number in dict.fromkeys(fields.values()):
            if kind == c.FUTURE[0]:
                self._error(number, c.METADATA_ERROR, "from the future")
            else:
                self._success(number)
                self.out.append(command(c.PRODUCER_SUCCESS, [(1, number), (2, "from-the-future")]))


def message_frame(consumer_id: int, entry: int, messages: int, size: int) -> bytes:
    """A MESSAGE: one entry of so many messages, and so many bytes behind its metadata."""
    metadata = message([(1, "p"), (2, entry), (3, 1), (11, messages)])
    head = message([(1, c.MESSAGE), (c.MESSAGE, [(1, consumer_id), (2, [(1, 1), (2, entry)])])])
    return frame(head, len(metadata).to_bytes(4, "big") + metadata + bytes(size))


def entry_of(data: bytes) -> int:
    """The entry id in the command of such a frame."""
    _, fields = read_command(data, c.OTHERS)
    return int(fields["of"][0]["entry"])
