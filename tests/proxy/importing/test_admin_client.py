"""One question to a broker's admin REST, and what can become of it."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

import proxy.importing.admin_client as module
from proxy.importing.admin_client import RefusedAnswer, connected, path_of, read_url, token_in
from proxy.importing.result import ImportFailed
from tests.proxy.importing.broker_admin import broker_admin


async def ask(answer: Any, refusals: tuple[int, ...] = (), token: str = "") -> Any:
    async with broker_admin(question=answer) as broker, connected(URL(broker.url), token) as admin:
        return await admin.get("question", dict[str, int], refusals)


async def refused(answer: Any) -> str:
    with pytest.raises(ImportFailed) as failed:
        await ask(answer)
    (problem,) = failed.value.problems
    assert "/admin/v2/question: " in problem
    return problem.split("/question: ")[1]


async def test_an_answer_is_read() -> None:
    assert await ask({"a": 1}) == {"a": 1}
    assert await ask(None) is None


async def test_a_refusal_that_one_is_prepared_for_is_no_error() -> None:
    assert await ask((404, {}), (404, 405)) == RefusedAnswer(404)


@pytest.mark.parametrize(("status", "words"), [(401, "--token-file"), (403, "superuser"), (404, "http://broker:8080")])
async def test_what_has_a_remedy_is_told_with_it(status: int, words: str) -> None:
    problem = await refused((status, {"reason": "no"}))
    assert problem.startswith(f"{status}: ")
    assert words in problem


@pytest.mark.parametrize("status", [405, 409, 429, 500, 503, 599])
async def test_any_other_refusal_is_told_in_the_brokers_words(status: int) -> None:
    assert await refused((status, {"reason": "\n my reason"})) == f"{status}: my reason"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"x"', b"\xff"])
async def test_a_refusal_without_words_is_told_all_the_same(body: bytes) -> None:
    assert await refused(lambda: web.Response(status=500, body=body)) == "500: the broker gives no reason"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"a": "x"}', b"\xff"])
async def test_what_is_not_a_brokers_answer_is_told(body: bytes) -> None:
    assert (await refused(lambda: web.Response(body=body))).startswith("the answer is not a broker's: ")


async def test_an_answer_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adminrest.client.MOST_BYTES", 1000)
    assert "more than 1000 bytes" in await refused(lambda: web.Response(body=b"x" * 1001))


async def test_silence_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0)
    assert await refused({}) == "no answer within 0 s"


def redirecting_to(location: str) -> Any:
    return lambda: web.Response(status=307, headers={"Location": location})


@pytest.mark.parametrize("base", ["", "{url}"])
async def test_a_redirect_within_the_host_is_followed_with_the_token(base: str) -> None:
    async with broker_admin(other={"a": 1}) as broker:
        broker.answers["question"] = redirecting_to(base.format(url=broker.url) + "/admin/v2/other")
        async with connected(URL(broker.url), "secret") as admin:
            assert await admin.get("question", dict[str, int]) == {"a": 1}
        assert (broker.asked, broker.tokens) == (["question", "other"], {"Bearer secret"})


async def test_a_redirect_to_another_broker_is_followed_without_a_token() -> None:
    async with broker_admin(question={"a": 1}) as owner, broker_admin() as asked:
        asked.answers["question"] = redirecting_to(f"{owner.url}/admin/v2/question")
        async with connected(URL(asked.url), "") as admin:
            assert await admin.get("question", dict[str, int]) == {"a": 1}
        assert (owner.tokens, asked.tokens) == ({None}, {None})


async def test_the_token_goes_to_no_other_port_than_the_one_that_was_given() -> None:
    async with broker_admin(question={"a": 1}) as other, broker_admin() as asked:
        asked.answers["question"] = redirecting_to(f"{other.url}/admin/v2/question")
        async with connected(URL(asked.url), "secret") as admin:
            with pytest.raises(ImportFailed, match=f"redirected to {other.url}, .* sent to {asked.url} only"):
                await admin.get("question", dict[str, int])
        assert (other.asked, asked.asked) == ([], ["question"])


@pytest.mark.parametrize("location", ["http://localhost:{port}/", "https://127.0.0.1:{port}/", "//[::1]:{port}/"])
async def test_the_token_goes_to_no_other_name_nor_scheme(location: str) -> None:
    async with broker_admin() as asked:
        asked.answers["question"] = redirecting_to(location.format(port=URL(asked.url).port))
        async with connected(URL(asked.url), "secret") as admin:
            with pytest.raises(ImportFailed, match="token is sent to"):
                await admin.get("question", dict[str, int])
        assert asked.asked == ["question"]


async def test_redirects_in_a_circle_end() -> None:
    circle = {"Location": "/admin/v2/question"}
    assert "redirected more than 10 times" in await refused(lambda: web.Response(status=307, headers=circle))


async def test_no_redirect_leads_elsewhere_than_to_http() -> None:
    assert "which is not http" in await refused(lambda: web.Response(status=302, headers={"Location": "ftp://x/"}))


async def test_without_a_token_none_is_sent() -> None:
    async with broker_admin(question={}) as broker, connected(URL(broker.url), "") as admin:
        await admin.get("question", dict[str, int])
        assert broker.tokens == {None}


def test_each_part_of_a_path_is_escaped() -> None:
    assert path_of("persistent", "a", "b", "c/d e?f#é%") == "persistent/a/b/c%2Fd%20e%3Ff%23%C3%A9%25"


@pytest.mark.parametrize("text", ["http://b:8080", "https://b", "http://[::1]:8080/", "http://b:8080/behind/a/path/"])
def test_the_web_service_of_a_broker_is_an_url(text: str) -> None:
    assert str(read_url(text)).rstrip("/") == text.rstrip("/")


@pytest.mark.parametrize("text", ["b:8080", "pulsar://b:6650", "http://", "http://b:x", "http://b?a=b", "//b", ""])
def test_what_is_none_is_told_with_an_example(text: str) -> None:
    with pytest.raises(ImportFailed, match="as http://broker:8080"):
        read_url(text)


def test_a_password_in_the_url_is_not_shown() -> None:
    with pytest.raises(ImportFailed) as failed:
        read_url("http://me:secret@b:8080")
    assert "--token-file" in failed.value.problems[0]
    assert "secret" not in failed.value.problems[0]


def test_a_token_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("a.b-c_d\n")
    assert (token_in(path), token_in(None)) == ("a.b-c_d", "")


@pytest.mark.parametrize("content", [b"", b"\n", b"a b", b"a\nb", b"\xff"])
def test_a_file_without_a_token_is_told_without_its_content(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(ImportFailed) as failed:
        token_in(path)
    assert failed.value.problems == [f"{path}: must hold one token in one line, and nothing else"]


def test_a_token_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="cannot be read: No such file"):
        token_in(tmp_path / "none")
