"""The page says what is served, no less and no more."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import jsonschema_rs
import pytest

from limiter.levels import Setting
from proxy.admin.handlers import description_of
from proxy.admin.openapi import page
from tests.proxy.admin_client import Admin


@pytest.fixture
async def admin(make_admin: Callable[[], Awaitable[Admin]]) -> Admin:
    return await make_admin()


@pytest.fixture
def said(admin: Admin) -> dict[str, Any]:
    return page(admin.app.router.routes(), "7.0")


def served(admin: Admin) -> set[tuple[str, str]]:
    routes = [route for route in admin.app.router.routes() if route.method != "HEAD"]
    return {(route.resource.canonical, route.method.lower()) for route in routes if route.resource}


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from references(child)


def test_every_route_is_on_the_page_and_every_path_of_the_page_is_served(admin: Admin, said: dict[str, Any]) -> None:
    routes = {(path, method) for path, operations in said["paths"].items() for method in operations}
    assert routes == served(admin)
    assert ("/sluice/openapi.json", "get") in routes


def test_every_handler_says_in_words_what_it_does(admin: Admin, said: dict[str, Any]) -> None:
    silent = [route for route in admin.app.router.routes() if description_of(route.handler) is None]
    assert silent == []
    operations = [operation for path in said["paths"].values() for operation in path.values()]
    assert all(operation["summary"] for operation in operations)
    assert len({operation["operationId"] for operation in operations}) == len(operations)


def test_every_name_in_a_path_is_a_parameter(said: dict[str, Any]) -> None:
    for path, operations in said["paths"].items():
        for operation in operations.values():
            needed = [
                parameter["name"]
                for parameter in operation["parameters"]
                if parameter["in"] == "path" and parameter["required"]
            ]
            assert needed == [part[1:-1] for part in path.split("/") if part.startswith("{")]


def test_whatever_is_pointed_to_is_there(said: dict[str, Any]) -> None:
    for reference in set(references(said)):
        node: Any = said
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
        assert node
    for schema in said["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema)


def test_probes_need_no_token_and_all_else_may(said: dict[str, Any]) -> None:
    assert said["security"] == [{"token": []}, {}]
    assert said["paths"]["/healthz"]["get"]["security"] == []
    assert "401" not in said["paths"]["/readyz"]["get"]["responses"]
    assert {"401", "403"} <= said["paths"]["/sluice/status"]["get"]["responses"].keys()


def test_queries_bodies_and_bounds_are_those_of_the_handlers(said: dict[str, Any]) -> None:
    audit = said["paths"]["/sluice/audit"]["get"]["parameters"]
    assert audit[0]["schema"] == {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 100}
    limits = said["paths"]["/sluice/limits"]["put"]
    assert [parameter["required"] for parameter in limits["parameters"]] == [True, True, False, False, False]
    assert [parameter["name"] for parameter in limits["parameters"] if parameter["in"] == "header"] == [
        "If-Match",
        "If-None-Match",
    ]
    assert {"412", "503", "504"} <= limits["responses"].keys()
    assert limits["parameters"][1]["schema"]["enum"] == [*Setting]
    assert {"type": "null"} in limits["requestBody"]["content"]["application/json"]["schema"]["anyOf"]
    assert said["paths"]["/admin/v2/resourcegroups/{group}"]["put"]["requestBody"]["required"] is False
    assert said["components"]["schemas"]["Body"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("model", "right", "wrong"),
    [
        ("RateLimit", {"messages": 500, "bytes": "10MB/s"}, {"messages": "a lot"}),
        ("RateLimit", {"messages": "5/30s", "burst_bytes": "1.5 KiB"}, {"messages": 0}),
        ("RateLimit", {"bytes": "30/min"}, {"messages": [5, 1000]}),
        ("RateLimit", {"messages": 5, "mode": "reject"}, {"tokens": 5}),
        ("DispatchLimit", {"messages": 5, "mode": "observe"}, {"messages": 5, "mode": "reject"}),
        ("AdmissionBounds", {"connection_rate": "200/s"}, {"connection_rate": "10MB/s"}),
    ],
)
def test_rates_and_sizes_are_told_as_they_are_written(
    said: dict[str, Any], model: str, right: object, wrong: object
) -> None:
    schema = {"$ref": f"#/components/schemas/config.{model}", "components": said["components"]}
    validator = jsonschema_rs.validator_for(schema)
    assert (validator.is_valid(right), validator.is_valid(wrong)) == (True, False)


def test_no_key_of_a_limit_may_be_null(said: dict[str, Any]) -> None:
    schemas = {name: schema for name, schema in said["components"]["schemas"].items() if name.startswith("config.")}
    assert schemas["config.RateLimit"]["properties"]["messages"]["anyOf"]
    assert [name for name, schema in schemas.items() if "'null'" in str(schema) or ": None" in str(schema)] == []


async def test_examples_of_a_set_can_be_applied(admin: Admin, said: dict[str, Any]) -> None:
    properties = said["components"]["schemas"]["config.WantedPolicies"]["properties"]
    body = {key: schema["examples"][0] for key, schema in properties.items()}
    status, answer = await admin.ask("PUT", "/sluice/policies", json=body)
    assert (status, answer["applied"]) == (200, True), answer
    assert len(answer["changes"]) > len(body["limits"])
