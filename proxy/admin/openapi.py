"""The OpenAPI 3.1 page of all that the admin address serves, made from its routes and the types of its handlers."""

import asyncio
import re
from collections.abc import Iterable
from http import HTTPStatus
from inspect import cleandoc
from types import UnionType
from typing import Any, get_args, get_origin

import msgspec
from aiohttp import web
from pydantic import BaseModel

from proxy.admin.handlers import (
    CONDITIONS,
    JSON,
    NOTHING,
    Content,
    Described,
    QueryKey,
    described,
    description_of,
    sent,
)
from proxy.admin.json_text import json_of
from proxy.admin.refusals import Refusal
from proxy.admin.routes.pulsar import PATH_NAMES
from proxy.admin.tenant_scope import ALWAYS_OPEN

_REF = "#/components/schemas/{}"
_OF_PYDANTIC = "config."
"""Prefix of the configuration's models: some have the names of Pulsar's bodies."""


class Schemas:
    """Makes JSON schemas, and collects those of types that have a name."""

    def __init__(self) -> None:
        self.components: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type.

        Raises:
            ValueError: If two types have one name.
        """
        if get_origin(kind) is UnionType:
            return {"anyOf": [self.of(member) for member in get_args(kind)]}
        is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
        schema, named = _by_pydantic(kind) if is_model else _by_msgspec(kind)
        for name, component in named.items():
            short = _with_short_description(component)
            if self.components.setdefault(name, short) != short:
                raise ValueError(f"two types are called {name}: rename one")
        return schema


def _by_pydantic(kind: type[BaseModel]) -> tuple[dict[str, Any], dict[str, Any]]:
    schema = kind.model_json_schema(ref_template=_REF.format(_OF_PYDANTIC + "{model}"))
    named = {_OF_PYDANTIC + name: _without_null(definition) for name, definition in schema.pop("$defs", {}).items()}
    name = _OF_PYDANTIC + kind.__name__
    return {"$ref": _REF.format(name)}, named | {name: _without_null(schema)}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a section whose keys may be left out, and are never null (`check_for_nulls`)."""
    properties = {key: _not_null(value) for key, value in schema.get("properties", {}).items()}
    return schema | {"properties": properties} if properties else schema


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in schema.items() if (key, value) != ("default", None)}
    if isinstance(kept.get("default"), dict):
        kept["default"] = {key: value for key, value in kept["default"].items() if value is not None}
    choices = [each for each in kept.pop("anyOf", ()) if each != {"type": "null"}]
    return {**choices[0], **kept} if len(choices) == 1 else kept | ({"anyOf": choices} if choices else {})


def _by_msgspec(kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    (schema,), named = msgspec.json.schema_components([kind], ref_template=_REF.format("{name}"))
    return schema, named


def _with_short_description(component: dict[str, Any]) -> dict[str, Any]:
    """Keep the first paragraph of a description: the rest of a docstring is for readers of the code."""
    if "description" in component:
        return component | {"description": first_paragraph(component["description"])}
    return component


def first_paragraph(text: str) -> str:
    """Return a docstring's first paragraph in one line."""
    return " ".join(cleandoc(text).partition("\n\n")[0].split())


_OF_EVERY_REQUEST = frozenset({400, 408, 413, 415, 429, 500})
_OF_AUTHENTICATION = frozenset({401, 403})
_OF_CHANGES = frozenset({503, 504})
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": {"const": "Bearer"}}},
    429: {"Retry-After": {"description": "seconds", "schema": {"type": "string", "pattern": "^[0-9]+$"}}},
}
_UNREADABLE: Content = {JSON: Refusal, "text/plain": str}
"""The content of a 400: a request that is not even HTTP is answered as text, before its path is known."""
_TAGS = {"/admin/": "Pulsar's own paths", "/sluice/": "Sluice"}
_NAME_IN_PATH = re.compile(r"\{(\w+)\}")
_ABOUT = (
    "Where GET is served, HEAD is, too. A path that is not served is a 404 and a method that is not a 405, each with a "
    "reason as all errors have one. Answers under /sluice/ name their process in the header Sluice-Process. A request "
    "with this header is a 421 at any other process, and nothing is done; probes and the console's page are open."
)


def page(routes: Iterable[web.AbstractRoute], version: str) -> dict[str, Any]:
    """Return the OpenAPI page.

    Args:
        routes: The routes of the application; handlers without a description are left out.
        version: The version of Sluice.

    Raises:
        ValueError: If two types have one name.
    """
    made = _Page()
    for route in routes:
        description = description_of(route.handler)
        if description is not None and route.resource is not None and route.method != "HEAD":
            made.add(route.method, route.resource.canonical, description, route.handler.__doc__ or "")
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

    def add(self, method: str, path: str, description: Described, meaning: str) -> None:
        names = [PATH_NAMES[name] for name in _NAME_IN_PATH.findall(path)]
        operation: dict[str, Any] = {
            "operationId": "_".join([method.lower(), *re.findall(r"\w+", path)]),
            "tags": [next((tag for prefix, tag in _TAGS.items() if path.startswith(prefix)), "Watching")],
            "summary": first_paragraph(meaning),
            "parameters": [
                *(_parameter("path", name) | {"required": True} for name in names),
                *(_parameter("query", key) | {"required": key.is_needed} for key in description.query),
                *(_parameter("header", key) | {"required": False} for key in CONDITIONS if description.is_conditional),
            ],
            "responses": {str(status): self._answer(status, content) for status, content in description.answers.items()}
            | {str(status): self._refusal(status) for status in _statuses(method, path, description)},
        }
        if description.body is not NOTHING:
            operation["requestBody"] = {
                "required": description.needs_body,
                "content": self._content({JSON: description.body}),
            }
        if path in ALWAYS_OPEN:
            operation["security"] = []
        self.paths.setdefault(path, {})[method.lower()] = operation

    def _refusal(self, status: int) -> dict[str, Any]:
        content = _UNREADABLE if status == 400 else {JSON: Refusal}
        self.refusals[str(status)] = self._answer(status, content) | {"headers": _HEADERS.get(status, {})}
        return {"$ref": f"#/components/responses/{status}"}

    def _answer(self, status: int, content: Content) -> dict[str, Any]:
        return {"description": HTTPStatus(status).phrase, "content": self._content(content)}

    def _content(self, content: Content) -> dict[str, Any]:
        return {media: {"schema": self.schemas.of(kind)} for media, kind in content.items()}


def _parameter(place: str, key: QueryKey) -> dict[str, Any]:
    return {"in": place, "name": key.name, "description": key.meaning, "schema": key.schema()}


def _statuses(method: str, path: str, description: Described) -> list[int]:
    statuses = description.refuses | _OF_EVERY_REQUEST
    if path not in ALWAYS_OPEN:
        statuses |= _OF_AUTHENTICATION
    if method != "GET":
        statuses |= _OF_CHANGES
    return sorted(statuses | {412} if description.is_conditional else statuses)


class OpenApiRest:
    """Serves the OpenAPI page, which is made at the first request.

    Args:
        version: The version of Sluice.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._page = b""
        self._turn = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for aiohttp."""
        return [web.get("/sluice/openapi.json", self.get)]

    @described({200: dict[str, Any]})
    async def get(self, request: web.Request) -> web.StreamResponse:
        """Return this page."""
        async with self._turn:
            if not self._page:
                routes = list(request.app.router.routes())
                self._page = await asyncio.to_thread(lambda: json_of(page(routes, self._version)))
        return await sent(request, self._page, {"Content-Type": JSON})
