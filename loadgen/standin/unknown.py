"""Commands that the stand-in broker does not know: is there a request to refuse?"""

from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from protocol.pulsar_pb2 import BaseCommand, CommandSuccess

UNLISTED = "unlisted"
_TYPE_FIELD = BaseCommand.TYPE_FIELD_NUMBER

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
    for known in ("watch_topic_list", "watch_topic_list_close"):
        if envelope.HasField(known):
            return int(getattr(envelope, known).request_id)
    body = _unknown_field(envelope, envelope.type)
    if body is None:
        return None
    try:
        begins_with_id = CommandSuccess.FromString(body.data)
    except DecodeError:
        return None
    return begins_with_id.request_id if begins_with_id.HasField("request_id") else None


def is_unlisted(envelope: BaseCommand) -> bool:
    """Whether the command's type is newer than the protocol file: such a value is an unknown field."""
    return not envelope.HasField("type") and _unknown_field(envelope, _TYPE_FIELD) is not None


def _unknown_field(envelope: BaseCommand, number: int) -> Any:
    fields = UnknownFieldSet(envelope)
    found = (fields[index] for index in range(len(fields)) if fields[index].field_number == number)
    return next(found, None)
