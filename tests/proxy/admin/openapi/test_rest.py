"""`GET /sluice/openapi.json`."""

from pathlib import Path

import pytest

from proxy.admin import openapi as rest
from tests.proxy.admin_client import Admin

PATH = "/sluice/openapi.json"


async def test_the_page_is_made_once_and_not_before_somebody_asks(make_admin, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def page(_routes: object, version: str) -> dict[str, str]:
        made.append(version)
        return {"openapi": "3.1.0"}

    monkeypatch.setattr(rest, "page", page)
    admin: Admin = await make_admin()
    assert made == []
    assert await admin.ask("GET", PATH) == (200, {"openapi": "3.1.0"})
    assert await admin.ask("GET", PATH) == (200, {"openapi": "3.1.0"})
    assert made == ["0"]


async def test_it_is_read_by_whom_status_is_read_by(make_admin, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text("grafana: {access: read, token: 0123456789abcdef}")
    tokens.chmod(0o600)
    admin: Admin = await make_admin(admin_access={"tokens": tokens})
    assert (await admin.ask("GET", PATH))[0] == 401
    status, answer = await admin.ask("GET", PATH, headers={"Authorization": "Bearer 0123456789abcdef"})
    assert (status, answer["openapi"], answer["info"]["version"]) == (200, "3.1.0", "0")
