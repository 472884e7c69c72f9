"""docs/rest.md, made from what a running Sluice says of its admin address: `python -m sluice.rest_reference`."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from adminrest.client import AdminClient
from proxy.assembly import ConfigSource, Proxy
from proxy.config.model import load_config
from proxy.observe.operator_log import set_up_operator_log

_FLAGS: Final = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"}
_SECTIONS: Final = {
    "Sluice": "Sluice's own",
    "Watching": "Watching",
    "Pulsar's own paths": "Pulsar's own paths",
}
"""The tags of operations, and their headings."""
_HEAD: Final = """\
# The REST of the admin address

All paths that the admin address serves. `GET /sluice/openapi.json` has the same for programs, with the schemas of
bodies and answers. [operating.md](operating.md#authentication) says who may ask, [policies.md](policies.md) what limits
do. With `admin_forward`, other paths of Pulsar are [passed on to the broker](policies.md#passing-the-rest-on). This
page is made from what a running Sluice answers.

Bodies and answers are JSON. An error has the body `{"reason": "…"}`:

| status | meaning |
|---|---|
| 400 | the request is not valid; the reason names the part and the remedy |
| 401, 403 | no token, or one that may not do this |
| 404, 405 | no such path or method, or nothing of that name |
| 408, 413, 415 | the body is too slow, too large, or of another type than `application/json` |
| 409, 412 | not possible as things are; `If-Match` or `If-None-Match` does not fit |
| 429 | too many requests; `Retry-After` has the seconds |
| 500, 503, 504 | the change could not be stored, is not possible now, or took too long |

In the tables, `?` marks a parameter of the query that may be left out.
"""


async def described() -> dict[str, Any]:
    """Return the OpenAPI page of a Sluice that is started for it, before no broker."""
    proxy = Proxy(ConfigSource(None, lambda: load_config(None, dict(_FLAGS))))
    _, admin = await proxy.start()
    try:
        page: dict[str, Any] = await asyncio.to_thread(AdminClient(f"http://{admin}").get_json, "/sluice/openapi.json")
        return page
    finally:
        await proxy.stop()


def reference(page: Mapping[str, Any]) -> str:
    """Return the whole page.

    Args:
        page: As `described` returns it.
    """
    parts = [_HEAD]
    for tag, heading in _SECTIONS.items():
        rows = "".join(_rows(page["paths"], tag))
        parts.append(f"## {heading}\n\n| request | effect | parameters |\n|---|---|---|\n{rows}")
    return "\n".join(parts)


def _rows(paths: Mapping[str, Mapping[str, Any]], tag: str) -> Iterator[str]:
    for path, operations in sorted(paths.items()):
        for method, operation in sorted(operations.items()):
            if operation["tags"] == [tag]:
                parameters = [_parameter(each) for each in operation["parameters"] if each["in"] == "query"]
                if "requestBody" in operation:
                    parameters.insert(0, "a body" if operation["requestBody"]["required"] else "a body, or none")
                yield f"| `{method.upper()} {path}` | {_cell(operation['summary'])} | {'; '.join(parameters)} |\n"


def _parameter(parameter: Mapping[str, Any]) -> str:
    words = parameter["schema"].get("enum", ())
    values = f" ({', '.join(f'`{word}`' for word in words if word != '')})" if any(words) else ""
    return f"`{parameter['name']}`{'' if parameter['required'] else '?'}: {_cell(parameter['description'])}{values}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").rstrip(".")


def main() -> None:
    """Print the page; the proxy's log goes to standard error."""
    set_up_operator_log()
    sys.stdout.write(reference(asyncio.run(described())))


if __name__ == "__main__":
    main()
