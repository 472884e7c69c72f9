"""The forms in which a command can be said, beside the usual: readers may disagree on what such a one means."""

from collections.abc import Callable
from functools import partial

from tests.proxy.session.ids import commands as c
from tests.proxy.session.ids.lightproto import (
    END_OF_GROUP,
    FIXED,
    GROUP,
    LENGTH,
    FieldList,
    message,
    overrunning,
    varint,
)

Form = Callable[[int, FieldList, FieldList], bytes]
"""Makes a BaseCommand of a type, its fields, and other fields that the command has not."""


def _scalars_twice(kind: int, fields: FieldList, decoy: FieldList) -> bytes:
    return message([(1, kind), (kind, [*decoy, *fields])])


def _body_twice(kind: int, fields: FieldList, decoy: FieldList) -> bytes:
    return message([(1, kind), (kind, decoy), (kind, fields)])


def _body_twice_in_part(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    """The second lacks what may be left out."""
    return message([(1, kind), (kind, fields), (kind, fields[:-1])])


def _another_body(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    other = c.CLOSE_CONSUMER if kind == c.CLOSE_PRODUCER else c.CLOSE_PRODUCER
    return message([(1, kind), (other, [(1, 1), (2, 1)]), (kind, fields)])


def _unknown_fields(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    return message([(1, kind), (999, 5), (kind, [(200, b"x"), *fields, (201, 7)]), (998, b"y")])


def _long_numbers(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    return message([(1, kind), (kind, message(fields, width=10))], width=3)


def _type_last(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    return message([(kind, fields), (1, kind)])


def _field_missing(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    return message([(1, kind), (kind, fields[1:])])


def _two_types(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    return message([(1, c.PING), (c.PING, []), (kind, fields), (1, kind)])


def _ends_early(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    """The command says that it is shorter than it is: brokers read its last field to the end all the same."""
    body, head = message(fields), message([(1, kind)])
    length_at = len(head) + len(message([(kind, b"")])) - 1
    whole = head + message([(kind, body)])
    return whole[:length_at] + bytes([max(0, whole[length_at] - 2)]) + whole[length_at + 1 :]


def _above_64_bits(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    field = message([(2, 1)])
    return message([(1, kind), (kind, message(fields).replace(field, field[:1] + b"\x81" + 8 * b"\x80" + b"\x7e"))])


def _long_heads(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    """Tags and lengths of five bytes."""
    return message([(1, kind), (kind, message(fields, head_width=5))], head_width=5)


def _too_long_heads(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    return message([(1, kind), (kind, message(fields, head_width=10))])


def _packed(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    """A number stands where a text would: nobody knows such a field, and a former one of the same number counts."""
    number, value = fields[0] if fields else (1, 1)
    return message([(1, kind), (kind, [*fields, (number, message([(number, value)]))])])


def _fixed(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    return message([(1, kind), (kind, message(fields) + varint(2 << 3 | FIXED) + b"\x08\x02\x10\x02")])


def _group(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    """A group holds another id; protobuf steps over it."""
    group = varint(99 << 3 | GROUP) + message([(1, 2)]) + varint(99 << 3 | END_OF_GROUP)
    return message([(1, kind), (kind, group + message(fields))])


def _group_outside(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    body = message([(kind, fields)])
    return message([(1, kind)]) + varint(99 << 3 | GROUP) + body + varint(99 << 3 | END_OF_GROUP) + body


def hidden(outer: int, kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    """The command stands in what looks like a field behind another command, whose body runs over its length."""
    seen = message(_OUTER.get(outer, [(1, 1), (2, _NOBODY)]))
    return message([(1, outer)]) + overrunning(outer, seen, message([(1, kind), (kind, fields)]))


def _hidden_fields(kind: int, fields: FieldList, decoy: FieldList) -> bytes:
    """The fields that count stand in what looks like one, behind a message within the command."""
    number, inside = _NESTED.get(kind, (99, []))
    body = message(decoy or fields) + overrunning(number, message(inside), message(fields))
    return message([(1, kind), (kind, body)])


def _hidden_at_the_end(kind: int, fields: FieldList, _decoy: FieldList) -> bytes:
    """A message within the command runs over the end of both."""
    number, inside = _NESTED.get(kind, (99, []))
    nested = message(inside) + varint(200 << 3 | LENGTH) + varint(2)
    return message([(1, kind), (kind, message([*fields, (number, nested)]))]) + message([(2, 1)])


_NOBODY = 2**64 - 1
_OUTER: dict[int, FieldList] = {
    c.ACK: [(1, 1), (2, 0)],
    c.CONNECT: [(1, "anybody")],
    c.SEND: [(1, 1), (2, 0)],
    c.PRODUCER: [(1, "persistent://free/space/topic"), (2, 1), (3, _NOBODY)],
    c.SUBSCRIBE: [(1, "persistent://free/space/topic"), (2, "one"), (3, 1), (4, 1), (5, _NOBODY)],
    c.LOOKUP: [(1, "persistent://free/space/topic"), (2, _NOBODY)],
    c.PARTITIONED_METADATA: [(1, "persistent://free/space/topic"), (2, _NOBODY)],
    c.GET_TOPICS: [(1, _NOBODY), (2, "free/space")],
    c.FUTURE[0]: [(1, _NOBODY)],
}
"""What a command needs that another hides in; any other an id and a request."""
_ENTRY: FieldList = [(1, 1), (2, 1)]
_NESTED: dict[int, tuple[int, FieldList]] = {
    c.PRODUCER: (6, [(1, "k"), (2, "v")]),
    c.SUBSCRIBE: (10, [(1, "k"), (2, "v")]),
    c.SEND: (9, _ENTRY),
    c.ACK: (3, _ENTRY),
    c.REDELIVER: (2, _ENTRY),
    c.SEEK: (3, _ENTRY),
    c.LOOKUP: (8, [(1, "k"), (2, "v")]),
    c.GET_TOPICS: (6, [(1, "k"), (2, "v")]),
}
"""A message within a command: its field, and what it needs."""
HIDING = (c.ACK, c.FUTURE[0], c.SEND, c.CONNECT, c.FLOW, c.REDELIVER, *sorted(c.FOLLOWED))
"""Commands in which others are hidden."""

FORMS: dict[str, Form] = {
    "scalars twice": _scalars_twice,
    "body twice": _body_twice,
    "body twice, the second in part": _body_twice_in_part,
    "another body": _another_body,
    "unknown fields": _unknown_fields,
    "long numbers": _long_numbers,
    "type last": _type_last,
    "field missing": _field_missing,
    "two types": _two_types,
    "ends early": _ends_early,
    "above 64 bits": _above_64_bits,
    "long heads": _long_heads,
    "too long heads": _too_long_heads,
    "packed": _packed,
    "fixed": _fixed,
    "group": _group,
    "group outside": _group_outside,
    "hidden fields": _hidden_fields,
    "hidden at the end": _hidden_at_the_end,
    **{f"hidden in {outer}": partial(hidden, outer) for outer in HIDING},
}
