"""Commands that the stand-in broker does not know: is there a request to refuse?"""

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from protocol.pulsar_pb2 import BaseCommand, CommandSuccess

UNLISTED = "unlisted"
_TYPE_TAG = 0x08

# The requests among the commands that protocol/pulsar.proto lists by type only. In each of them the
# first field is the request's id.
_REQUESTS = frozenset(
    {
        BaseCommand.CONSUMER_STATS,
        BaseCommand.NEW_TXN,
        BaseCommand.ADD_PARTITION_TO_TXN,
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
        BaseCommand.END_TXN,
        BaseCommand.END_TXN_ON_PARTITION,
        BaseCommand.END_TXN_ON_SUBSCRIPTION,
        BaseCommand.TC_CLIENT_CONNECT_REQUEST,
        BaseCommand.WATCH_TOPIC_LIST,
        BaseCommand.WATCH_TOPIC_LIST_CLOSE,
    }
)


def request_id_of(envelope: BaseCommand) -> int | None:
    """The id of the request inside, None where the command is no request."""
    if envelope.type not in _REQUESTS:
        return None
    fields = UnknownFieldSet(envelope)
    for index in range(len(fields)):
        field = fields[index]
        if field.field_number == envelope.type:
            return _first_field(field.data)
    return None


def _first_field(body: bytes) -> int | None:
    """CommandSuccess stands for any command that begins with a request id."""
    try:
        return CommandSuccess.FromString(body).request_id
    except DecodeError:
        return None


def is_unlisted(command: bytes) -> bool:
    """Whether the bytes are a command of a type newer than the protocol file."""
    if len(command) < 2 or command[0] != _TYPE_TAG:
        return False
    number, shift = 0, 0
    for byte in command[1:6]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number not in BaseCommand.Type.values()
    return False
