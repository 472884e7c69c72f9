"""Why a line is not one record, in words; asked only of lines that did not decode."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from accesslog.record import SCHEMA_VERSION, Kinds
from compliance.schema import nullable_fields, required_fields
from compliance.strict import LARGEST, REFUSALS, decoder, is_text, micros_of, plain, strict, without_burst

LONGEST_QUARANTINED = 100_000
"""Characters of a malformed line that are kept."""
_LONGEST_NAMED = 100
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)")


def fault(line: bytes) -> str:
    """The first rule that the line breaks."""
    if not is_text(line):
        return "not UTF-8 text"
    if not line.decode().strip():
        return "empty line"
    fields = _object(line)
    if fields is None:
        return "not exactly one complete JSON object"
    return _of_head(fields) or _of_fields(fields["kind"], fields) or _of_decoder(line)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        fields = msgspec.json.decode(line)
    except REFUSALS:
        return None
    return fields if isinstance(fields, dict) else None


def _of_head(fields: dict[str, Any]) -> str | None:
    kind, version = fields.get("kind"), fields.get("v")
    if kind is None:
        return "missing: kind"
    if not isinstance(kind, str) or kind not in Kinds.BY_NAME:
        return f"unknown kind: {str(kind)[:_LONGEST_NAMED]}"
    if isinstance(version, int) and version > SCHEMA_VERSION:
        return f"newer schema version: {version}"
    return None


def _of_fields(kind: str, fields: dict[str, Any]) -> str | None:
    types = {field.encode_name: field.type for field in msgspec.structs.fields(Kinds.BY_NAME[kind])}
    said = {name: fields[name] for name in types if fields.get(name) is not None}
    # A null limit means "none", so it must be written: a lost field must not lift a limit.
    absent = (set(required_fields(kind)) - said.keys()) | (set(nullable_fields(kind)) - fields.keys())
    faults = {
        "wrong type": [name for name, value in said.items() if not _is_of(value, types[name])],
        "missing": [name for name in types if name in absent],
        "impossible value": [*_impossible(said, types), *(without_burst(said.get) if kind == "limit" else ())],
    }
    return next((f"{what}: {', '.join(names)}" for what, names in faults.items() if names), None)


def _is_of(value: object, python_type: Any) -> bool:
    """Whether it is written as such values are; a time that is none is an impossible value."""
    bare = plain(python_type)
    if bare is datetime:
        return True
    if bare is int:
        return type(value) is int and abs(value) <= LARGEST
    if bare is float:
        return type(value) in (int, float)
    if bare == tuple[int, ...]:
        return isinstance(value, list)
    return isinstance(value, bool if bare is bool else str)


def _impossible(said: dict[str, Any], types: dict[str, Any]) -> Iterator[str]:
    for name, value in said.items():
        is_time = plain(types[name]) is datetime
        if is_time and not (isinstance(value, str) and _RFC3339.fullmatch(value)):
            yield name
            continue
        try:
            _ = micros_of(value) if is_time else msgspec.convert(value, strict(types[name], name))
        except (msgspec.ValidationError, OverflowError):
            yield name


def _of_decoder(line: bytes) -> str:
    try:
        decoder().decode(line)
    except REFUSALS as error:
        return f"not a record: {error}"
    return "not a record"
