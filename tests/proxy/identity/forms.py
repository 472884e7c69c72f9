"""The forms in which a command can be said, beside the usual: readers may disagree on what such a one means."""

from collections.abc import Callable

from tests.proxy.identity import commands as c
from tests.proxy.identity.lightproto import FieldList, message

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
    one = message([(2, 1)])
    return message([(1, kind), (kind, message(fields).replace(one, one[:1] + b"\x81" + 8 * b"\x80" + b"\x7e"))])


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
}
