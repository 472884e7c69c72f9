"""All that the admin address serves, as OpenAPI 3.1: each route with what its handler says of itself.

Source: https://spec.openapis.org/oas/v3.1.1.html
"""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from aiohttp import web

from proxy.admin.doors import ALWAYS_OPEN
from proxy.admin.openapi.described import JSON, NOTHING, Content, Described, description_of
from proxy.admin.openapi.schemas import Schemas, first_paragraph
from proxy.admin.pulsar.names import PATH_NAMES
from proxy.admin.questions import Key
from proxy.admin.refusal import Refusal

_OF_EVERY_REQUEST = frozenset({400, 408, 413, 429, 500})
_OF_DOORS = frozenset({401, 403})
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": {"const": "Bearer"}}},
    429: {"Retry-After": {"description": "seconds", "schema": {"type": "string", "pattern": "^[0-9]+$"}}},
}
_UNREADABLE: Content = {JSON: Refusal, "text/plain": str}
"""What is not even HTTP gets an answer before anybody looks at its path."""
_TAGS = {"/admin/": "Pulsar's own paths", "/sluice/": "Sluice"}
_NAME_IN_PATH = re.compile(r"\{(\w+)\}")
_ABOUT = (
    "Where GET is served, HEAD is, too. A path that is not served is a 404 and a method that is not a 405, each with a "
    "reason as all errors have one."
)


def page(routes: Iterable[web.AbstractRoute], version: str) -> dict[str, Any]:
    """The page.

    Args:
        routes: Of the application; handlers that say nothing of themselves are left out.
        version: Of Sluice.

    Raises:
        ValueError: If two types have one name.
    """
    made = _Page()
    for route in routes:
        said = description_of(route.handler)
        if said is not None and route.resource is not None and route.method != "HEAD":
            made.add(route.method, route.resource.canonical, said, route.handler.__doc__ or "")
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sluice's admin address", "version": version, "description": _ABOUT},
        "paths": made.paths,
        "components": {
            "schemas": dict(sorted(made.schemas.components.items())),
            "responses": dict(sorted(made.refusals.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


class _Page:
    def __init__(self) -> None:
        self.schemas = Schemas()
        self.paths: dict[str, dict[str, Any]] = {}
        self.refusals: dict[str, Any] = {}

    def add(self, method: str, path: str, said: Described, meaning: str) -> None:
        names = [PATH_NAMES[name] for name in _NAME_IN_PATH.findall(path)]
        operation: dict[str, Any] = {
            "operationId": "_".join([method.lower(), *re.findall(r"\w+", path)]),
            "tags": [next((tag for prefix, tag in _TAGS.items() if path.startswith(prefix)), "Watching")],
            "summary": first_paragraph(meaning),
            "parameters": [
                *(_parameter("path", name) | {"required": True} for name in names),
                *(_parameter("query", key) | {"required": key.is_needed} for key in said.query),
            ],
            "responses": self._answers(said) | {str(status): self._refusal(status) for status in _statuses(path, said)},
        }
        if said.body is not NOTHING:
            operation["requestBody"] = {"required": said.needs_body, "content": self._content({JSON: said.body})}
        if path in ALWAYS_OPEN:
            operation["security"] = []
        self.paths.setdefault(path, {})[method.lower()] = operation

    def _answers(self, said: Described) -> dict[str, Any]:
        return {str(status): self._answer(status, content) for status, content in said.answers.items()}

    def _refusal(self, status: int) -> dict[str, Any]:
        content = _UNREADABLE if status == 400 else {JSON: Refusal}
        self.refusals[str(status)] = self._answer(status, content) | {"headers": _HEADERS.get(status, {})}
        return {"$ref": f"#/components/responses/{status}"}

    def _answer(self, status: int, content: Content) -> dict[str, Any]:
        return {"description": HTTPStatus(status).phrase, "content": self._content(content)}

    def _content(self, content: Content) -> dict[str, Any]:
        return {media: {"schema": self.schemas.of(kind)} for media, kind in content.items()}


def _parameter(place: str, key: Key) -> dict[str, Any]:
    return {"in": place, "name": key.name, "description": key.meaning, "schema": key.schema()}


def _statuses(path: str, said: Described) -> list[int]:
    return sorted(said.refuses | _OF_EVERY_REQUEST | (frozenset() if path in ALWAYS_OPEN else _OF_DOORS))
