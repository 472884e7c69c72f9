"""Makes `docs/access-log.md` from the record's types and docstrings.

python -m accesslog.reference > docs/access-log.md
"""

import ast
import inspect
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import msgspec

from accesslog.record import BUCKETS, SCHEMA_VERSION, Kinds, LineHead, upper_bound_ms

_HEAD = """\
# The access log

Made from the types in `accesslog/` by `python -m accesslog.reference > docs/access-log.md`. The schema of the
compliance job is derived from the same types. How the files are written, closed and deleted:
[operating.md](operating.md#the-access-log).

JSON lines in UTF-8; `kind` is the kind of line. There is a line per stream (or limiter) and interval in which something
happened, never one per message.

- **Time.** `start` and `end` are UTC, for people and for joining with other logs. `mono_us` is `end` by the monotonic
  clock, and `duration_ms` and all other lengths are of it too: a stepped wall clock bends no rate and no order.
- **Messages** are what the broker counts: a batch of ten is ten messages and one *entry*. **Bytes** are everything
  after the command of a SEND or MESSAGE frame: magic, checksum, metadata, payload.
- **Names** that would take more than 256 bytes of a line, or that have characters which cannot be seen or which a
  terminal obeys, are written as their first 100 bytes, a digest of the whole, and their last 40 bytes, with `…`
  between and `?` for each such character. One name is always written alike, and no two are.
- **Left out** are fields that have their default; the tables name it. A field without one is in every line of its kind,
  as `null` where the table says so.
- **Versions.** `v` is {version}. It changes when the meaning of a field does. New fields (with defaults) and new kinds
  may come at any time; readers skip unknown fields.
- **Numbers.** Within a run (`proxy_id`, `boot_id`) each line has the next `seq`: a gap is a lost line, a repetition a
  duplicate. A `loss` line declares lines that are lost for good.

"""

_DELAYS = """\
## Delays

`delay_hist` counts messages by how long they had been held, in {buckets} buckets of fixed bounds: below 1 ms; then
four to each doubling; from 65.536 s on. Histograms of any two lines can be added place by place, and percentiles of the
sum are right to a quarter of themselves (percentiles of lines cannot be averaged). Bucket *n*, counted from 0, ends
below:

| bucket | ms |
|---|---|
"""

_TYPES: dict[Any, str] = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
    datetime: "time",
    tuple[int, ...]: "list of integers",
}


def reference() -> str:
    """Return the page."""
    head = _HEAD.format(version=SCHEMA_VERSION)
    every_line = f"## Every line\n\n{_table(LineHead, list(_fields(LineHead)))}\n"
    return head + every_line + "".join(map(_section, Kinds.BY_NAME)) + _delays()


def _section(name: str) -> str:
    kind = Kinds.BY_NAME[name]
    common = {field.name for field in _fields(LineHead)}
    own = [field for field in _fields(kind) if field.name not in common]
    return f"## {name}\n\n{inspect.cleandoc(kind.__doc__ or '')}\n\n{_table(kind, own)}\n"


def _delays() -> str:
    shown = [*range(6), *range(8, BUCKETS - 1, 4)]
    rows = "".join(f"| {bucket} | {upper_bound_ms(bucket):,g} |\n" for bucket in shown)
    return _DELAYS.format(buckets=BUCKETS) + rows + f"| {BUCKETS - 1} | no end |\n"


def _table(kind: type[LineHead], fields: list[msgspec.structs.FieldInfo]) -> str:
    meanings = field_meanings(kind)
    rows = (f"| `{f.name}` | {_type(f.type)} | {_default(f)} | {meanings[f.name]} |\n" for f in fields)
    return "| field | type | default | meaning |\n|---|---|---|---|\n" + "".join(rows)


def _fields(kind: type[LineHead]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _type(python_type: Any) -> str:
    if get_origin(python_type) is Literal:
        return " or ".join(f"`{word}`" for word in get_args(python_type))
    if isinstance(python_type, UnionType):
        return " or ".join("null" if part is type(None) else _TYPES[part] for part in get_args(python_type))
    return _TYPES[python_type]


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT:
        return ""
    return f"`{msgspec.json.encode(field.default).decode()}`"


def field_meanings(kind: type[LineHead]) -> dict[str, str]:
    """Map each field of a kind to the docstring below it, on one line; a field without one has no entry."""
    return dict(_documented(kind) if kind is LineHead else (*_documented(LineHead), *_documented(kind)))


def _documented(kind: type) -> Iterator[tuple[str, str]]:
    (body,) = (node.body for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef))
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            yield ast.unparse(field.target), " ".join(str(text.value.value).split()).replace("|", r"\|")


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201 - this is its job
