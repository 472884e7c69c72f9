"""Read the few numbers that metering needs directly from an encoded frame.

A protobuf message is a row of fields, each a tag (field number · 8 + wire type) and a value. These functions skip all
fields that metering does not need. `tests/protocol/test_walk.py` compares them with protobuf's own decoder.

A frame that the broker reads differently would slip past the meter. So numbers are cut to the widths of their fields,
as every decoder does. Input that decoders disagree on is refused: two different types in one command, a command that is
there twice, tags of more than 32 bits or five bytes, groups.

Pulsar's decoder (LightProto) does not end a nested message at its declared length: where the last field runs over that
length, decoding goes on after the field. Bytes that are skipped here could be a command there. So a client's command
must be its type and then its body, and the body must end with the command. In a SEND nothing may follow a field with a
length. The metadata of a MESSAGE is its publisher's. It is read as the broker reads it, because the broker counts
permits by it.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from protocol.frames import SEND, MalformedFrame

CHECKSUM_MAGIC: Final = 0x0E01
BROKER_ENTRY_MAGIC: Final = 0x0E02
OWNER: Final = 0x08  # CommandSend.producer_id, CommandMessage.consumer_id
NUM_MESSAGES: Final = 0x18  # CommandSend.num_messages
_TYPE: Final = 0x08  # BaseCommand.type
_NUM_MESSAGES_IN_BATCH: Final = 0x58  # MessageMetadata.num_messages_in_batch
_PROPERTIES: Final = 0x22  # MessageMetadata.properties
_ENCRYPTION_KEYS: Final = 0x6A  # MessageMetadata.encryption_keys
_KEY_METADATA: Final = 0x1A  # EncryptionKeys.metadata
_SCHEMA_DATA: Final = 0x1A  # Schema.schema_data
_MOST_SEND: Final = 65536  # bytes of a SEND without its entry: it has eight fields, and each further one costs a look
_MOST_FIELDS: Final = 30_000
"""Fields of metadata that are looked at, in 0.1 to 4 ms: 10,000 properties have as many. 5 MB hold 2.6 million."""
UNCOUNTED: Final = (1 << 31) - 1
"""The number of messages where the metadata has more fields: the largest that metadata can declare. The broker may have
taken as many permits."""
_ENDLESS: Final = "a number inside a command or its metadata has no end"


def u32(data: bytes, at: i64) -> i64:
    """Return the big-endian number of four bytes at `at`; the caller has checked that these have arrived."""
    return i64(read_i32_be(data, at)) & 0xFFFFFFFF


def varint(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """Return the varint at `at` as a signed number of 64 bits, and the position after it.

    Raises:
        MalformedFrame: If the number runs over `end` or over ten bytes.
    """
    value: i64 = 0
    shift: i64 = 0
    while at < end:
        byte: i64 = data[at]
        at += 1
        if shift == 63:
            if byte >= 0x80:
                break
            sign: i64 = byte & 1  # bits above 64 are cut off, as protobuf does
            return value - sign * 0x7FFFFFFFFFFFFFFF - sign, at
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise MalformedFrame(_ENDLESS)


def _after_varint(data: bytes, at: i64, end: i64) -> i64:
    """Return the position after the varint at `at`; errors as `varint`. Compares up to eight bytes at once."""
    if at + 8 <= len(data):
        ahead: i64 = read_i64_be(data, at)
        more: i64 = 1 << 55
        last: i64 = at
        if ahead < 0:
            last += 1
            while ahead & more:
                more >>= 8
                last += 1
        if last < end and last < at + 8:
            return last + 1
    last = at + 10
    while at < last and at < end:
        if data[at] < 0x80:
            return at + 1
        at += 1
    raise MalformedFrame(_ENDLESS)


def _long_tag(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    tag, after = varint(data, at, min(end, at + 5))
    if tag > 0xFFFFFFFF:
        raise MalformedFrame("a field's tag has more than 32 bits")
    return tag, after


def skip(data: bytes, at: i64, end: i64, tag: i64) -> i64:
    """Return the position after the value at `at`, whose `tag` has been read.

    Raises:
        MalformedFrame: If the value runs over `end` or the tag's number or wire type is not allowed.
    """
    wire_type: i64 = tag & 7
    if tag < 8:
        raise MalformedFrame("a field has the number 0")
    length: i64 = 0
    if wire_type == 0:
        return _after_varint(data, at, end)
    if wire_type == 2:
        length = data[at] if at < end else 0x80
        if length < 0x80:
            at += 1
        else:
            length, at = varint(data, at, end)
    elif wire_type == 5:
        length = 4
    elif wire_type == 1:
        length = 8
    else:
        raise MalformedFrame(f"a field has the unknown wire type {wire_type}")
    if length < 0 or length > end - at:
        raise MalformedFrame("a field is longer than the message that holds it")
    return at + length


def read_command(data: bytes, at: i64, end: i64, payload_kind: i64) -> tuple[i64, i64, i64]:  # noqa: PLR0912 - a walk in one piece
    """Return the type of the BaseCommand in `data[at:end]`, and fields 1 and 3 of its SEND or MESSAGE.

    `payload_kind` says which of the two commands is looked into. If that command or its field 1 is missing, the id is
    -1; if field 3 is missing, its value is 0. Of a repeated field the last one counts.

    Raises:
        MalformedFrame: If the command has no type or two types, the payload command is there twice (protobuf merges the
            two, for brokers only the last counts), or a field is broken. With `payload_kind` SEND, so from clients:
            also if the command is more than its type and then the body of that type.
    """
    field_tag: i64 = payload_kind << 3 | 2
    owner: i64 = -1
    third: i64 = 0
    inside: i64 = end - at - 4  # if the type, the command's tag and its length have four bytes, as nearly always
    if inside >= 4 and inside < 0x80 and field_tag < 0x80:
        head: i64 = read_i64_be(data, at)
        if (
            head >> 24 == _TYPE << 32 | payload_kind << 24 | field_tag << 16 | inside << 8 | OWNER
            and head & 0x800000 == 0
        ):
            owner = head >> 16 & 0x7F
            owner, third = _ids(data, at + 6, end, owner, third, payload_kind == SEND)
            return payload_kind, owner, third
    if payload_kind == SEND:
        return _read_of_client(data, at, end)
    kind: i64 = 0
    value: i64 = 0
    bodies: i64 = 0
    while at < end:
        tag: i64 = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = _long_tag(data, at - 1, end)
        if tag != _TYPE and tag != field_tag:
            at = skip(data, at, end, tag)
            continue
        value = data[at] if at < end else 0x80
        if value < 0x80:  # nearly always; a call less
            at += 1
        else:
            value, at = varint(data, at, end)
        if tag == _TYPE:
            if value < 1 or value > 0x7FFFFFFF or (kind > 0 and kind != value):
                raise MalformedFrame(f"a command of type {value}" + (f" and of type {kind}" if kind > 0 else ""))
            kind = value
        else:
            if value < 0 or value > end - at or bodies > 0:
                raise MalformedFrame("a command is there twice" if bodies > 0 else "a command is longer than its frame")
            bodies += 1
            owner, third = _ids(data, at, at + value, owner, third, False)
            at += value
    if kind == 0:
        raise MalformedFrame("a command without a type")
    return kind, owner, third


def schema_data_in(data: bytes, at: i64, end: i64, command: i64, schema: i64, most: i64) -> i64:
    """Return the bytes of schema data in a BaseCommand: the one value that may be long and costs nothing to read.

    The result is too small if there are more than `most` bytes beside it.

    Args:
        data: The bytes that hold the command.
        at: Position at which the message begins: the BaseCommand, or the message inside it.
        end: Position after the message's last byte.
        command: Tag of the command within the BaseCommand; 0 inside the command.
        schema: Tag of the schema within the command; 0 inside the schema.
        most: Most bytes of other fields that are skipped.

    Raises:
        MalformedFrame: If a field is broken.
    """
    field_tag: i64 = command or schema or _SCHEMA_DATA
    total: i64 = 0
    begin: i64 = at
    while at < end and at - begin - total <= most:
        tag, at = _long_tag(data, at, end)
        after: i64 = skip(data, at, end, tag)
        if tag == field_tag:
            length, at = varint(data, at, end)
            if schema:
                length = schema_data_in(data, at, after, 0, schema if command else 0, most)
            total += length
        at = after
    return total


def _read_of_client(data: bytes, at: i64, end: i64) -> tuple[i64, i64, i64]:
    """Read a client's command for `read_command`: its type, and then its body, which ends with the command."""
    owner: i64 = -1
    third: i64 = 0
    if at >= end or data[at] != _TYPE:
        raise MalformedFrame("a command does not begin with its type")
    kind, at = varint(data, at + 1, end)
    if kind < 1 or kind > 0x7FFFFFFF:
        raise MalformedFrame(f"a command of type {kind}")
    if at == end:
        return kind, owner, third
    tag, at = _long_tag(data, at, end)
    if tag != (kind << 3 | 2) & 0xFFFFFFFF:
        raise MalformedFrame(f"a command of type {kind} has a field with the tag {tag}")
    size, at = varint(data, at, end)
    if size != end - at:
        raise MalformedFrame(f"the body of a command of type {kind} does not end with the command")
    if kind == SEND:
        if size > _MOST_SEND:
            raise MalformedFrame(f"a SEND of {size} bytes beside its entry")
        owner, third = _ids(data, at, end, owner, third, True)
    return kind, owner, third


def _ids(data: bytes, at: i64, end: i64, owner: i64, third: i64, is_strict: bool) -> tuple[i64, i64]:  # noqa: FBT001
    """Return fields 1 and 3 of a message; if `is_strict`, no field may follow one that has a length."""
    value: i64 = 0
    while at < end:
        tag: i64 = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = _long_tag(data, at - 1, end)
        if tag & 7 != 0 or tag < 8:
            at = skip(data, at, end, tag)
            if is_strict and tag & 7 == 2 and at != end:
                raise MalformedFrame("a field follows one that has a length")
            continue
        value = data[at] if at < end else 0x80
        if value < 0x80:
            at += 1
        elif tag != OWNER and tag != NUM_MESSAGES:
            at = _after_varint(data, at, end)
            continue
        else:
            value, at = varint(data, at, end)
        if tag == OWNER:
            owner = value
        elif tag == NUM_MESSAGES:
            third = value
    return owner, third


def messages_after(data: bytes, at: i64, end: i64, frame_end: i64) -> i64:
    """Return the number of messages of a MESSAGE frame whose command ends at `at`.

    Broker entry metadata and a checksum may precede the metadata. If bytes are missing, returns minus the position up
    to which they must arrive.

    Raises:
        MalformedFrame: If the frame has no metadata, or less than it says.
    """
    at = _metadata_at(data, at, end, frame_end)
    if at < 0:
        return at
    if end - at < 4:
        return -(at + 4)
    metadata_end: i64 = at + 4 + u32(data, at)
    if metadata_end > frame_end:
        raise MalformedFrame("the metadata of a MESSAGE is longer than its frame")
    return -metadata_end if metadata_end > end else messages_in_metadata(data, at + 4, metadata_end)


def _metadata_at(data: bytes, at: i64, end: i64, frame_end: i64) -> i64:
    """Return the position of the metadata's size, or minus the position up to which bytes are missing."""
    magic: i64 = BROKER_ENTRY_MAGIC
    while frame_end - at >= 6:
        if end - at < 6:
            return -(at + 6)
        first: i64 = u32(data, at) >> 16
        if first == BROKER_ENTRY_MAGIC and magic == BROKER_ENTRY_MAGIC:
            at += 6 + u32(data, at + 2)
            magic = CHECKSUM_MAGIC
            continue
        at += 6 if first == CHECKSUM_MAGIC else 0
        if frame_end - at < 4:
            break
        return at
    raise MalformedFrame("a MESSAGE without metadata")


def messages_in_metadata(data: bytes, at: i64, end: i64) -> i64:
    """Return num_messages_in_batch of the MessageMetadata in `data[at:end]`; 1 if it is absent or makes no sense.

    Metadata that cannot be read to its end is no error: the publisher wrote it, and the connection of the consumer must
    not be closed for it. The fields before the error count. Nested messages may run over their length, as at the
    broker. Of metadata with more than `_MOST_FIELDS` fields the result is UNCOUNTED.
    """
    messages: i64 = 1
    left: i64 = _MOST_FIELDS
    try:
        while at < end:
            if left <= 0:
                return UNCOUNTED
            left -= 1
            tag: i64 = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = _long_tag(data, at - 1, end)
            if tag == _NUM_MESSAGES_IN_BATCH:
                messages, at = varint(data, at, end)
                continue
            if tag == _PROPERTIES or tag == _ENCRYPTION_KEYS:  # noqa: SIM109 - mypyc makes objects of a tuple
                at, left = _after_message(data, at, end, tag, left)
                continue
            # `skip`'s usual cases without its calls, a sixth of the time of a MESSAGE: a value or a length of one byte
            ahead: i64 = data[at] if at < end else 0x80
            if tag < 8 or ahead >= 0x80 or (tag & 7 != 0 and (tag & 7 != 2 or ahead >= end - at)):
                at = skip(data, at, end, tag)
            elif tag & 7 == 0:
                at += 1
            else:
                at += 1 + ahead
    except MalformedFrame:
        pass
    return message_count(messages)


def _after_message(data: bytes, at: i64, end: i64, tag: i64, left: i64) -> tuple[i64, i64]:
    """Return the position after the message at `at`, whose `tag` has been read, and how many of `left` fields are left.

    If the message's last field is longer than the message, that is the position after the field. If none are left, it
    is a position inside the message, or after it.
    """
    size, at = varint(data, at, end)
    if size < 0 or size > end - at:
        raise MalformedFrame("a message is longer than the metadata that holds it")
    stop: i64 = at + size
    while at < stop and left > 0:
        left -= 1
        inner: i64 = data[at]
        at += 1
        if inner >= 0x80:
            inner, at = _long_tag(data, at - 1, end)
        if inner == _KEY_METADATA and tag == _ENCRYPTION_KEYS:
            at, left = _after_message(data, at, end, inner, left)
        else:
            at = skip(data, at, end, inner)
    return at, left


def message_count(number: i64) -> i64:
    """Return a number of messages, cut to int32 as its field is; 1 if that is below 1."""
    count: i64 = number & 0xFFFFFFFF
    if count >= 1 and count < 0x80000000:  # no conditional expression: mypyc makes objects of a native number and `1`
        return count
    return 1
