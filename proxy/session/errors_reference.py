"""docs/errors.md, made from the refusals in the code: `python -m proxy.session.errors_reference`."""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from protocol.pulsar_pb2 import ServerError
from proxy import refusals as refusal_texts
from proxy.observe.log_reference import constants_of
from proxy.session.events import CloseReason

_PACKAGE: Final = Path(__file__).parents[1]
_HEAD: Final = """\
# Errors that clients get from Sluice

Sluice passes the broker's errors on as they are. This page has its own: the code of Pulsar's protocol, which clients
turn into an exception, and the text, in which … replaces names and numbers. It is made from the code.

## A request is refused

The connection and all else on it stay. Bounds of `admission` are in
[limits.md](limits.md#connections-lookups-subscriptions).

| code | text |
|---|---|
| NotAllowedError | a [block](operating.md#blocking), with its reason |
| ServiceNotReady, ProducerBusy, ConsumerBusy, TooManyRequests | a bound of `admission`, with its key |
| NotAllowedError, ChecksumError | a limit in mode [`reject`](limits.md#reject), with its name |
"""
_ENDS: Final = """\

## A connection ends

The reason is the label `cause` of `sluice_connections_ended_total`, and is in the access log. Before the end, the
client gets an error with the code. It gets none if it ended the connection itself, has not sent CONNECT, or is moved or
kicked.

| reason | code | meaning |
|---|---|---|
"""


def refusals() -> list[tuple[str, str]]:
    """Return code and text of each refusal that the code spells out, in order."""
    rows = set[tuple[str, str]]()
    for path in _PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "RefusedError":
                code, text = node.args
                if isinstance(code, ast.Name) and code.id in ServerError.keys():  # noqa: SIM118 - an enum of protobuf
                    rows.update((code.id, each) for each in _texts(text, constants_of(tree)))
    return sorted(rows)


def _texts(node: ast.expr, constants: Mapping[str, str]) -> Iterator[str]:
    """Yield the text of a refusal, if it is spelt out where it is raised, or as a constant of `proxy.refusals`."""
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value)
            if isinstance(part, ast.Constant)
            else constants.get(ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else "", "…")
            for part in node.values
        )
    elif isinstance(node, ast.Name) and hasattr(refusal_texts, node.id):
        yield getattr(refusal_texts, node.id)


def _meanings() -> dict[str, str]:
    """Return the docstring below each reason."""
    source = ast.parse(Path(__file__).with_name("events.py").read_text(encoding="utf-8"))
    reasons = next(each for each in source.body if isinstance(each, ast.ClassDef) and each.name == "CloseReason")
    meanings, last = {}, ""
    for each in reasons.body:
        if isinstance(each, ast.Assign):
            last = ast.literal_eval(each.value)
        elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and last:
            meanings[last] = " ".join(str(each.value.value).split())
    return meanings


def reference() -> str:
    """Return the whole page."""
    meanings = _meanings()
    refused = "".join(f"| {code} | {text} |\n" for code, text in refusals())
    ends = "".join(
        f"| `{reason}` | {'' if reason.is_of_peer else ServerError.Name(reason.error)} | {meanings[reason]} |\n"
        for reason in CloseReason
    )
    return f"{_HEAD}{refused}{_ENDS}{ends}"


def main() -> None:
    """Print the page."""
    sys.stdout.write(reference())


if __name__ == "__main__":
    main()
