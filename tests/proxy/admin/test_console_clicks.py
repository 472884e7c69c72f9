"""The console in a real browser, driven by clicks and keys."""

import asyncio
import contextlib
import json
import re
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from limiter import levels
from limiter.levels import Setting
from limiter.limiter import Entry, Stream, StreamName
from limiter.token_bucket import rate
from protocol.topic_name import parse_topic
from proxy.assembly import ConfigSource, Proxy
from proxy.config.limits import RateLimit
from proxy.config.model import Config
from proxy.observe.connection import Connection
from tests.loadgen.standin.conftest import running_broker
from tests.proxy.admin import browser
from tests.proxy.admin.browser import Chromium, Page
from tests.proxy.admin.test_kick_rest import Client
from tests.proxy.admin_client import Admin
from tests.proxy.live_admin import UNHURRIED, LiveAdmin
from tests.proxy.tcp import broker_on_loopback, connect_to
from tests.proxy.wire import connect, connected, producer, producer_success
from tests.waiting import until
from tools import console_pictures
from tools.console_pictures import DESKTOP, LIMIT, SHOTS

pytestmark = pytest.mark.skipif(browser.PROGRAM is None, reason="needs Chromium (Debian's package chromium)")

OPS, VIEWER, ACME = "ops-0123456789abcd", "viewer-0123456789", "acme-0123456789ab"
TOKENS: dict[str, dict[str, Any]] = {
    "ops": {"access": "write", "token": OPS},
    "viewer": {"access": "read", "token": VIEWER},
    "acme": {"access": "write", "token": ACME, "tenants": ["acme"]},
}
LIMITS = {
    "namespaces": {
        "acme/shop": {"publish_total": {"messages": "5/h", "burst_messages": 1}},
        "other/x": {"publish_total": {"messages": "7/h", "burst_messages": 1}},
    }
}
EVIL = "<img src=x onerror=alert(1)>\u202egnp.exe\x07"
SEEN = "<img src=x onerror=alert(1)>\\u{202e}gnp.exe\\u{7}"
REFUSED = re.compile(r"Failed to load resource: the server responded with a status of 4\d\d .* http://127.0.0.1")
"""Chromium logs each answer that is a refusal."""
HELD_ROWS = "document.querySelectorAll('#streams tbody tr').length"


def hold(admin: Admin, topic: str, number: int, producer_name: str = "p", role: str = "billing") -> Stream:
    """A producer of which two entries are held."""
    name, now = parse_topic(topic), admin.engine.clock()
    stream_name = StreamName("publish", name.tenant, name.namespace, name.full, number, producer_name)
    connection = Connection(number, f"192.0.2.{number}:40001", client_role=role)
    stream = Stream(stream_name, (), lambda _stream, _entry: None, connection)
    admin.engine.registry.open(stream, name, now, levels.Client(producer_name=producer_name))
    for _ in range(2):
        admin.engine.scheduler.hold(stream, Entry(b"x" * 100, 1, 100, 200, now), now)
    return stream


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with browser.chromium(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveAdmin]:
    tokens = tmp_path / "tokens.yaml"
    tokens.touch(mode=0o600)
    tokens.write_text(yaml.safe_dump(TOKENS))
    made = LiveAdmin(tmp_path / "policies.db", limits=LIMITS, admin_access={"tokens": str(tokens), **UNHURRIED})

    async def fill() -> None:
        hold(made.admin, "persistent://acme/shop/orders", 1, EVIL)
        hold(made.admin, "persistent://acme/shop/returns", 2, role="shop")
        hold(made.admin, "persistent://other/x/secret", 3)

    made.run(fill())
    yield made
    made.close()


@pytest.fixture
async def page(live: LiveAdmin, chromium: Chromium) -> AsyncIterator[Page]:
    """The console before a token; at the end no script has failed, and nothing was asked of another host."""
    async with chromium.page() as opened:
        await opened.look_as(1280, 900)
        await opened.open(f"{live.url}/console")
        yield opened
        assert [each for each in opened.problems if not REFUSED.match(each)] == []
        assert {url for url in opened.requested if not url.startswith((live.url, "data:"))} == set()
        assert await opened.value(
            "document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)"
        ) == ("{}{}")


async def sign_in(page: Page, token: str) -> None:
    await page.write("#token", token)
    await page.press("Enter")
    await page.until(f"{HELD_ROWS} > 0")


async def text(page: Page, selector: str) -> str:
    return str(await page.value(f"document.querySelector('{selector}').innerText"))


def messages_of(live: LiveAdmin, name: str) -> str:
    async def look() -> str:
        value = live.admin.engine.registry.policies.by_name("publish", Setting.NAMESPACE)[name]
        return f"{value.limit.messages.tokens if value.limit and value.limit.messages else 0} {value.limit.mode}"

    return live.run(look())


SHOP = "/sluice/limits?direction=publish&setting=namespace&name=acme/shop"


async def set_limit(live: LiveAdmin, token: str, body: str, path: str = SHOP) -> None:
    """Set a limit by another caller than the page."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    assert (await asyncio.to_thread(live.ask, "PUT", path, body.encode(), **headers)).status == 200


BETWEEN = """(() => {{
  const real = window.fetch;
  let release;
  const until = new Promise((resolve) => {{ release = resolve; }});
  window.release = () => {{ window.fetch = real; release(); }};
  window.sent = [];
  window.fetch = (url, options) => {{
    const line = `${{options.method}} ${{url}}`;
    if (!line.includes({part})) return real(url, options);
    window.sent.push(line);
    return {answer};
  }};
}})()"""
HELD_BACK = "until.then(() => real(url, options))"
REFUSED_NOW = 'Promise.resolve(new Response(\'{"reason": "too many requests"}\', {status: 429}))'


async def come_between(page: Page, part: str, answer: str) -> None:
    """Answer requests with a part in their line in another way, until `release()` in the page."""
    await page.value(BETWEEN.format(part=json.dumps(part), answer=answer))


async def test_hostile_names_are_text_with_what_is_unseen_shown(page: Page) -> None:
    await sign_in(page, OPS)
    assert SEEN in await text(page, "#streams")
    assert await page.value("document.querySelectorAll('img').length") == 0
    assert await page.value("document.body.innerHTML.includes('\\u202e')") is False


async def test_wrong_token_is_refused_and_asked_for_again(page: Page) -> None:
    await page.write("#token", "wrong-0123456789abc")
    await page.press("Enter")
    await page.until("!document.getElementById('problem').hidden")
    assert "this token is not known here" in await text(page, "#problem")
    await sign_in(page, OPS)
    await page.until("document.getElementById('problem').hidden")


async def test_next_holder_of_a_token_sees_nothing_of_the_one_before(page: Page) -> None:
    await sign_in(page, OPS)
    await page.until("!document.getElementById('drain-part').hidden || !document.getElementById('blocks-part').hidden")
    await page.until("!state.isLooking")
    await come_between(page, "GET /sluice/limiters", HELD_BACK)
    await page.until("sent.length > 0")
    await page.click("#leave")
    await page.value("release()")
    await page.until("!state.isLooking")
    assert await page.value("state.streams ?? state.limits ?? state.fleet") is None
    assert await page.value("state.before.size + document.querySelectorAll('tbody tr').length") == 0
    assert await text(page, "#problem") == ""
    await page.write("#token", ACME)
    await come_between(page, "GET /sluice/streams", HELD_BACK)
    await page.press("Enter")
    await page.until("sent.length > 0")
    shown = await text(page, "body")
    assert "acme: may change tenants acme" in shown
    assert not [each for each in ("Held streams", "stream of", "3 held", "block", "Drain", "Fleet") if each in shown]
    await page.value("release()")
    await page.until(f"{HELD_ROWS} === 2")


async def test_search_finds_by_topic_and_by_client(page: Page) -> None:
    await sign_in(page, OPS)
    assert await page.value(HELD_ROWS) == 3
    for search, rows in (("returns", 1), ("192.0.2.3", 1), ("acme", 2), ("billing", 2)):
        await page.write("#search", search)
        await page.press("Enter")
        await page.until(f"{HELD_ROWS} === {rows}")
    await page.write("#search", "none such")
    await page.press("Enter")
    await page.until("document.getElementById('streams-note').innerText.includes('No held stream with this name')")


async def test_limit_is_raised_with_its_effect_shown_before(page: Page, live: LiveAdmin) -> None:
    await sign_in(page, OPS)
    await page.click("#limits tbody button.link")
    await page.until("document.getElementById('effect').innerText.includes('are within it')")
    assert "acme/shop" in await text(page, "#limit-title")
    assert "2 streams of this process, 2 of them held" in await text(page, "#neighbours-note")
    assert await page.value("document.getElementById('apply').disabled")
    await page.click("#raise")
    effect = await text(page, "#effect")
    within = "2 streams of this process are within it, 2 of them waiting now."
    assert effect == f"From messages 5/h, mode enforce to messages 10/h, mode enforce. {within}"
    assert messages_of(live, "acme/shop") == "5 enforce"
    await page.click("#apply")
    await page.until("document.querySelector('#limit .outcome').innerText.startsWith('Changed')")
    assert messages_of(live, "acme/shop") == "10 enforce"
    await page.click("#observe")
    assert "to messages 10/h, mode observe." in await text(page, "#effect")
    await page.click("#apply")
    await page.until("document.querySelector('#limit .outcome').innerText.includes('to messages 10/h, mode observe')")
    assert messages_of(live, "acme/shop") == "10 observe"
    await page.click("#take-back")
    await page.until("document.getElementById('confirm').open")
    effect = await text(page, "#confirm-effect")
    assert effect.startswith("From messages 10/h, mode observe, set by ops to messages 5/h")
    assert effect.endswith(f"the value of the file. {within}")
    assert messages_of(live, "acme/shop") == "10 observe"
    await page.click("#confirm-apply")
    await page.until("document.querySelector('#confirm .outcome').innerText.startsWith('Taken back: messages 5/h')")
    assert messages_of(live, "acme/shop") == "5 enforce"
    await page.press("Escape")
    assert await page.value("document.getElementById('take-back').hidden")
    audited = live.ask("GET", "/sluice/audit", Authorization=f"Bearer {OPS}").body
    assert [each["who"] for each in json.loads(audited)["changes"]] == ["ops"] * 3


@dataclass(frozen=True)
class Changed:
    """A limit that the console changes: its name, its value before, and what a button makes of that."""

    name: str
    before: str
    button: str
    after: str


WIDE = {
    "plans": {
        "gold": {"publish": {"messages": "30/min", "burst_messages": 500, "peak_messages": "90/min"}},
        "small": {"publish": {"bytes": "1MB", "burst_bytes": "300KB"}},
    },
    "tenants": {
        "gold-*": "gold",
        "small-*": "small",
        "each-*": {"publish": {"bytes": "3MB", "mode": "observe"}},
        "slow-*": {"publish": {"messages": "1/s"}},
        "odd-*": {"publish": {"bytes": "1.2MB", "messages": "1/h"}},
    },
    "producers": {"app": {"publish": {"messages": "9/h"}}},
    "topics": {"persistent://acme/a/t": {"publish": {"messages": "8/h"}}},
    "exempt": {"publish": {"messages": "7/h"}},
}
GOLD = "messages 30/min, burst messages 500, peak messages 90/min, mode enforce"
CHANGED = [
    Changed("gold-1", GOLD, "#lower", GOLD.replace("30/min", "15/min").replace("90/min", "45/min")),
    Changed("gold-2", GOLD, "#raise", GOLD.replace("30/min", "60/min").replace("90/min", "180/min")),
    Changed("gold-3", GOLD, "#observe", GOLD.replace("enforce", "observe")),
    Changed(
        "small-1",
        "bytes 1MB/s, burst bytes 300KB, mode enforce",
        "#lower",
        "bytes 500KB/s, burst bytes 300KB, mode enforce",
    ),
    Changed("each-1", "bytes 3MB/s, mode observe", "#lower", "bytes 1.5MB/s, mode observe"),
    Changed("slow-1", "messages 1/s, mode enforce", "#lower", "messages 30/min, burst messages 1, mode enforce"),
    Changed(
        "odd-1",
        "messages 1/h, bytes 1.2MB/s, mode enforce",
        "#raise",
        "messages 2/h, bytes 2.4MB/s, mode enforce",
    ),
]


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[LiveAdmin]:
    """A proxy whose limits are those of patterns and plans, each with one held stream."""
    made = LiveAdmin(tmp_path / "policies.db", limits=WIDE, admin_access=UNHURRIED)

    async def fill() -> None:
        for number, changed in enumerate(CHANGED, 1):
            hold(made.admin, f"persistent://{changed.name}/a/t", number)

    made.run(fill())
    yield made
    made.close()


async def open_limit(page: Page, name: str, level: str = "tenant") -> None:
    """Open the dialog of a limit, and wait until it knows the effect of a change."""
    await page.value(f"void openLimit({json.dumps({'direction': 'publish', 'level': level, 'name': name})})")
    await page.until("document.getElementById('effect').innerText.includes('within it')")


async def test_change_begins_with_the_whole_value_of_a_pattern(wide: LiveAdmin, chromium: Chromium) -> None:
    async with desktop(wide, chromium) as page:
        for changed in CHANGED:
            await open_limit(page, changed.name)
            assert (await text(page, "#effect")).startswith(
                f"No change yet: {changed.before}. 1 stream of this process"
            )
            note = await text(page, "#limit-note")
            pattern = changed.name[:-1] + "*"
            plan = f", plan {changed.name.partition('-')[0]}" if changed.name.startswith(("gold", "small")) else ""
            assert f"from tenant {pattern}{plan} (file)" in note
            assert note.endswith(f"a change here is for tenant {changed.name} alone.")
            await page.click(changed.button)
            effect = await text(page, "#effect")
            assert effect.startswith(f"From {changed.before} to {changed.after}. 1 stream of this process is within it")
            await page.click("#apply")
            await page.until("document.querySelector('#limit .outcome').innerText.startsWith('Changed from')")
            await page.until(
                f"document.getElementById('effect').innerText.startsWith('No change yet: {changed.after}.')"
            )
            await page.press("Escape")
            await page.until("!state.limit")


async def test_limits_have_the_pattern_and_plan_that_they_are_from(wide: LiveAdmin, chromium: Chromium) -> None:
    async with desktop(wide, chromium) as page:
        await page.until(f"document.querySelectorAll('#limits tbody tr').length === {len(CHANGED)}")
        shown = await text(page, "#limits")
        assert "publish, enforce, from tenant gold-*, plan gold (file)" in shown
        assert "publish, observe, from tenant each-* (file)" in shown


async def search(page: Page, words: str, rows: int) -> None:
    """Search, and wait for as many limits that are not at work."""
    await page.write("#search", words)
    await page.press("Enter")
    await page.until(
        f"!state.isLooking && !state.isAsked && document.querySelectorAll('#named tbody tr').length === {rows}"
    )


async def test_limit_without_streams_is_found_and_changed(wide: LiveAdmin, chromium: Chromium) -> None:
    def set_here(name: str) -> bool:
        return any(key.name == name for key in wide.state().kept)

    async with chromium.page() as page:
        await page.look_as(360, 740)
        await opened(page, wide.address)
        await search(page, "gold-77", 2)
        assert await text(page, "#limits-note") == "No limit with this name is at work."
        shown = await text(page, "#named")
        assert all(each in shown for each in ("tenant gold-77", GOLD, "tenant gold-*, plan gold (file)", "no limit"))
        assert await page.value("document.documentElement.scrollWidth") <= 360
        assert await page.violations() == []
        await page.value("document.querySelector('#named button').focus()")
        await page.press("Enter")
        await page.until("document.getElementById('effect').innerText.includes('within it')")
        assert await text(page, "#limit-note") == (
            f"Not at work now; {GOLD}; from tenant gold-*, plan gold (file); a change here is for tenant gold-77 alone."
        )
        await page.click("#lower")
        lower = GOLD.replace("30/min", "15/min").replace("90/min", "45/min")
        assert await text(page, "#effect") == f"From {GOLD} to {lower}. No stream of this process is within it now."
        assert not set_here("gold-77")
        await page.click("#apply")
        await page.until("document.querySelector('#limit .outcome').innerText.startsWith('Changed from')")
        assert set_here("gold-77")
        assert f"to {GOLD}, from tenant gold-*, plan gold (file)." in await take_back(page)
        assert not set_here("gold-77")
        await page.press("Escape")
        await search(page, "nobody/yet", 2)
        await page.click("#named tbody tr:nth-child(2) button")
        await page.until("document.getElementById('limit-note').innerText.includes('no limit is set')")
        await page.write("#change-messages", "5/s")
        assert (await text(page, "#effect")).startswith(
            "From no limit to messages 5/s, mode enforce. No stream of this"
        )
        await page.click("#apply")
        await page.until("document.querySelector('#limit .outcome').innerText.startsWith('Changed from no limit')")
        assert set_here("nobody/yet")
        await page.press("Escape")
        await page.until("document.getElementById('named').innerText.includes('namespace nobody/yet (rest)')")
        for words, rows in (("acme/a/t", 4), ("persistent://acme/a/t-partition-1", 4), ("gold-1", 1), ("a b", 0)):
            await search(page, words, rows)


async def test_new_limit_counts_the_streams_that_it_would_hold(page: Page, live: LiveAdmin) -> None:
    async def fill() -> None:
        for number in (7, 8):
            hold(live.admin, f"persistent://acme/shop/parts-partition-{number}", number)

    live.run(fill())
    await sign_in(page, OPS)
    await search(page, "acme/shop/orders", 4)
    note = await text(page, "#named-note")
    assert note.startswith("These limit no stream of this process now. One that is set holds at once")
    for level, its, streams in (
        ("tenant", "acme", 4),
        ("partitioned_topic", "persistent://acme/shop/parts", 2),
        ("topic", "persistent://acme/shop/parts-partition-7", 2),
        ("topic", "persistent://acme/shop/orders", 1),
    ):
        await page.value(f"void openLimit({json.dumps({'direction': 'publish', 'level': level, 'name': its})})")
        await page.until("document.getElementById('effect').innerText.includes('would be within')")
        plural = "s" if streams > 1 else ""
        its_own = "such limits" if "-partition-" in its else "it"
        assert f" {streams} stream{plural} of this process would be within {its_own}." in await text(page, "#effect")
        if streams > 1:
            await page.press("Escape")
            await page.until("!state.limit")
    await page.write("#change-messages", "1/h")
    await page.click("#apply")
    await page.until("document.querySelector('#limit .outcome').innerText.startsWith('Changed from no limit')")
    await page.until("document.getElementById('effect').innerText.includes('1 stream of this process is within it')")


async def test_word_of_a_client_is_offered_as_no_tenant(page: Page, live: LiveAdmin) -> None:
    await set_limit(live, OPS, '{"messages": "9/s"}', "/sluice/limits?direction=publish&setting=tenant&name=gold-*")
    await set_limit(live, OPS, '{"messages": "9/s"}', "/sluice/limits?direction=publish&setting=tenant&name=*")
    await sign_in(page, OPS)
    for words, rows in (("billing", 0), ("192.0.2.1", 0), ("p", 0), ("billing/", 2), ("gold-7", 2), ("acme", 1)):
        await search(page, words, rows)
    await search(page, "acme/", 1)
    assert await page.value("state.limits.limiters.some(({ level, name }) => level === 'tenant' && name === 'acme')")


async def test_tenant_is_offered_its_own_limits_alone(page: Page) -> None:
    await sign_in(page, ACME)
    for words, rows in (("acme", 2), ("other", 0), ("other/x", 0), ("acme/shop", 1), ("acme/none", 2)):
        await search(page, words, rows)
    await page.click("#leave")
    assert await page.value("document.querySelectorAll('#named tr:has(td)').length") == 0


async def test_take_back_shows_the_pattern_that_holds_then(wide: LiveAdmin, chromium: Chromium) -> None:
    path = "/sluice/limits?direction=publish&setting=tenant&name=gold-1"
    await set_limit(wide, "", '{"messages": "7/s"}', path)
    async with desktop(wide, chromium) as page:
        await open_limit(page, "gold-1")
        await page.click("#take-back")
        await page.until("document.getElementById('confirm').open")
        effect = await text(page, "#confirm-effect")
        source = "from tenant gold-*, plan gold (file)"
        assert effect.startswith(f"From messages 7/s, mode enforce, set by anonymous to {GOLD}, {source}. 1 stream of")
        await page.click("#confirm-apply")
        await page.until(
            f"document.querySelector('#confirm .outcome').innerText === 'Taken back: {GOLD}, {source}, holds again.'"
        )


async def test_change_of_more_than_the_limit_shown_is_said(wide: LiveAdmin, chromium: Chromium) -> None:
    async def fill() -> None:
        hold(wide.admin, "persistent://acme/a/t-partition-3", 91, "app")
        hold(wide.admin, "persistent://acme/a/t-partition-4", 92, "app")
        hold(wide.admin, "persistent://globex/a/t", 93, "app")
        hold(wide.admin, "persistent://acme/a/__change_events", 94)

    wide.run(fill())
    async with desktop(wide, chromium) as page:
        for level, its, target, streams in (
            ("producer", "app@persistent://acme/a/t", "producer app on each topic, of any tenant.", 2),
            ("topic", "persistent://acme/a/t-partition-3", "topic acme/a/t, each of its partitions.", 1),
            ("exempt", "persistent://acme/a/__change_events", "each of Pulsar's own topics, of any tenant.", 1),
        ):
            await page.value(f"void openLimit({json.dumps({'direction': 'publish', 'level': level, 'name': its})})")
            await page.until("document.getElementById('effect').innerText.includes('within the limit that is shown')")
            assert (await text(page, "#limit-note")).endswith(f"; a change here is for {target}")
            effect = await text(page, "#effect")
            assert f" {streams} stream{'s' if streams > 1 else ''} of this process " in effect
            assert effect.endswith(" waiting now; the change is for others, too.")
            await page.press("Escape")
            await page.until("!state.limit")


async def test_rate_without_a_half_is_refused_and_said(page: Page, live: LiveAdmin) -> None:
    await sign_in(page, OPS)
    await open_limit(page, "acme/shop", "namespace")
    for written, button, problem in (
        ("1/20000d", "#lower", "half of that cannot be written"),
        ("0.5/s", "#lower", "is no rate, as 500/s or 30/min"),
        ("5/0.5ms", "#raise", "twice of that cannot be written"),
        ("6/0.5ms", "#lower", "half of that cannot be written"),
    ):
        await page.write("#change-messages", written)
        await page.click(button)
        assert problem in await text(page, "#limit .outcome")
        assert await page.value("document.getElementById('change-messages').value") == written
    await page.write("#change-messages", "2/h")
    await page.write("#change-burst-messages", "4")
    await page.click("#apply")
    await page.until("document.querySelector('#limit .outcome').innerText.startsWith('Changed from')")
    assert "to messages 2/h, burst messages 4, mode enforce." in await text(page, "#limit .outcome")
    assert messages_of(live, "acme/shop") == "2 enforce"


IMPOSSIBLE = [
    (
        {"messages": "abc"},
        "messages abc is no rate: write a whole number above 0 per period, as 500/s, 30/min or 5/30s",
    ),
    ({"messages": "-5"}, "messages -5 is no rate"),
    ({"messages": "0"}, "messages 0 is no rate"),
    ({"messages": "5/fortnight"}, "messages 5/fortnight is no rate"),
    ({"bytes": "10Mb/s"}, "bytes 10Mb/s is no rate: write whole bytes above 0 per period, as 10MB/s or 500KB/min"),
    ({"burst-messages": "2.5"}, "burst messages 2.5 is no number of messages above 0"),
    ({"messages": f"{2**63}"}, f"messages {2**63} is too much: at most {2**63 - 1}."),
    ({"bytes": "9999999999GiB/s"}, f"bytes 9999999999GiB/s is too much: at most {2**63 - 1} bytes."),
    ({"messages": "1/24856d"}, "messages 1/24856d is too long a period: at most 2147483647s."),
    ({"burst-messages": f"{2**63}"}, f"burst messages {2**63} is too much: at most {2**63 - 1}."),
    ({"burst-bytes": "9999999999GiB"}, f"burst bytes 9999999999GiB is too much: at most {2**63 - 1} bytes."),
    ({"burst-bytes": "5KB"}, "burst bytes needs bytes: without a rate it limits nothing"),
    ({"peak-messages": "9/h"}, "peak messages needs burst messages"),
    ({"peak-messages": "4/h", "burst-messages": "2"}, "peak messages 4/h is not above messages 5/h"),
    ({"messages": ""}, "write messages, bytes or both; to hold nothing, leave them and observe only"),
]


async def test_value_that_the_proxy_refuses_has_no_effect_shown(page: Page, live: LiveAdmin) -> None:
    await sign_in(page, OPS)
    await open_limit(page, "acme/shop", "namespace")
    for written, problem in IMPOSSIBLE:
        before = {field: await page.value(f"at('change-{field}').value") for field in written}
        for field, value in written.items():
            await page.write(f"#change-{field}", value)
        effect = await text(page, "#effect")
        assert effect.startswith(f"This cannot be set: {problem}"), effect
        assert await page.value("at('apply').disabled")
        assert await page.value("document.querySelectorAll('#change [aria-invalid=true]').length") == 1
        await page.press("Enter")
        for field, value in before.items():
            await page.write(f"#change-{field}", value)
        assert (await text(page, "#effect")).startswith("No change yet: messages 5/h,")
    assert await page.violations() == []
    await page.write("#change-messages", "6/h")
    assert await page.value("at('apply').disabled") is False
    assert messages_of(live, "acme/shop") == "5 enforce"


RATES = [
    "500",
    "5/s",
    "05/s",
    "0.5/s",
    "30/min",
    "5/30s",
    "5/0.0000000001s",
    "5/1.5ms",
    "1/0.3333333333s",
    "5/s/s",
    "5/",
    "/s",
    "5s",
    "1e3",
    "+5",
    "5/S",
    "5/31d",
    "9223372036854775807",
    "9223372036854775808",
    "1/2147483647s",
    "1/2147483648s",
    "1/24855d",
    "1/24856d",
    "10MB",
    "10MB/s",
    "1.5KiB",
    "0.001KB",
    "10Mb",
    "0.0005KB/s",
    "10kB/h",
    "9223372036854775.807KB",
    "9223372036854776KB",
    "1__0",
    "5/0s",
    "00",
    "0",
    "64KB",
    "0.0015KB",
    "0.4B",
    "0.5B",
    "1.5B",
]


async def test_page_and_proxy_agree_on_what_can_be_set(page: Page) -> None:
    def is_taken(key: str, written: str) -> bool:
        kind = "bytes" if key.endswith("bytes") else "messages"
        try:
            RateLimit.model_validate({kind: 5, key: written})
        except ValidationError:
            return False
        return True

    read = {"messages": "readRate", "bytes": "readRate", "burst_messages": "readBurst", "burst_bytes": "readBurst"}
    for key, function in read.items():
        question = f"{json.dumps(RATES)}.map((text) => {function}(text, isOfBytes('{key}')) !== null)"
        answers = await page.value(question)
        assert dict(zip(RATES, answers, strict=True)) == {written: is_taken(key, written) for written in RATES}, key


LOCAL_NAMES = [
    "x",
    "x-partition-0",
    "x-partition-01",
    "x-partition-17",
    "x-partition-2147483647",
    "x-partition-2147483648",
    "x-partition-00000000001",
    "x-partition-1-partition-2",
    "x-partition-",
    "x-partition-1x",
    "x-partition-\u0661\u0660",
    "x-partition-\u0660\u0661",
    "x-partition-\u09671",
    "x-partition-\U0001d7d9",
]


async def test_page_and_proxy_agree_on_what_is_a_partition(page: Page) -> None:
    topics = [f"persistent://a/b/{local}" for local in LOCAL_NAMES]
    names = await page.value(f"{json.dumps(topics)}.map(partitionedName)")
    assert names == [parse_topic(topic).partitioned for topic in topics]


async def is_not_overwritten(page: Page, value: str) -> None:
    """Change a limit that another caller has changed meanwhile: its value is shown, and nothing is done."""
    await page.click("#lower")
    await page.click("#apply")
    await page.until("document.querySelector('#limit .outcome').innerText.length > 0")
    assert (await text(page, "#limit .outcome")).startswith("It has changed meanwhile, and nothing was done.")
    await page.until(f"document.getElementById('effect').innerText.startsWith('No change yet: messages {value},')")
    assert await page.value("document.getElementById('change-messages').value") == value


@pytest.mark.parametrize("before", ["", "PUT /sluice/limits"], ids=["shown", "sent"])
async def test_change_that_came_between_is_not_overwritten(page: Page, live: LiveAdmin, before: str) -> None:
    await sign_in(page, OPS)
    await page.click("#limits tbody button.link")
    await page.until("document.getElementById('effect').innerText.includes('are within it')")
    if before:
        await come_between(page, before, HELD_BACK)
        await page.click("#lower")
        await page.click("#apply")
        await page.until("sent.length === 1")
        await set_limit(live, OPS, '{"messages": "6/h"}')
        await page.value("release()")
        await page.until("document.querySelector('#limit .outcome').innerText.startsWith('It has changed meanwhile')")
        await page.until("document.getElementById('change-messages').value === '6/h'")
    else:
        await set_limit(live, OPS, '{"messages": "6/h"}')
        await is_not_overwritten(page, "6/h")
    assert messages_of(live, "acme/shop") == "6 enforce"
    await page.click("#lower")
    await page.click("#apply")
    await page.until("document.querySelector('#limit .outcome').innerText.startsWith('Changed from messages 6/h')")
    assert messages_of(live, "acme/shop") == "3 enforce"


async def test_change_between_value_and_tag_is_not_overwritten(page: Page, live: LiveAdmin) -> None:
    await sign_in(page, OPS)
    await page.until("!state.isLooking")
    await come_between(page, "GET /sluice/limits?", HELD_BACK)
    await page.click("#limits tbody button.link")
    await page.until("sent.length > 0")
    await set_limit(live, OPS, '{"messages": "6/h"}')
    await page.value("release()")
    await page.until("document.getElementById('effect').innerText.includes('are within it')")
    assert await page.value("document.getElementById('change-messages').value") == "5/h"
    await is_not_overwritten(page, "6/h")
    assert messages_of(live, "acme/shop") == "6 enforce"


async def test_change_of_the_pattern_is_not_overwritten(wide: LiveAdmin, chromium: Chromium) -> None:
    async with desktop(wide, chromium) as page:
        await open_limit(page, "slow-1")
        path = "/sluice/limits?direction=publish&setting=tenant&name=slow-*"
        await set_limit(wide, "", '{"messages": "10/s"}', path)
        await is_not_overwritten(page, "10/s")
        assert not [key for key in wide.state().kept if "slow-1" in str(key)]


async def test_take_back_of_what_has_changed_meanwhile_is_refused(page: Page, live: LiveAdmin) -> None:
    path = "/sluice/limits?direction=publish&setting=namespace&name=acme/shop"
    headers = {"Authorization": f"Bearer {OPS}", "Content-Type": "application/json"}
    assert (await asyncio.to_thread(live.ask, "PUT", path, b'{"messages": "6/h"}', **headers)).status == 200
    await sign_in(page, OPS)
    await page.click("#limits tbody button.link")
    await page.until("document.getElementById('effect').innerText.includes('within it')")
    await page.click("#take-back")
    await page.until("document.getElementById('confirm').open")
    assert (await asyncio.to_thread(live.ask, "PUT", path, b'{"messages": "7/h"}', **headers)).status == 200
    await page.click("#confirm-apply")
    await page.until("document.querySelector('#confirm .outcome').innerText.length > 0")
    assert messages_of(live, "acme/shop") == "7 enforce"
    await asyncio.to_thread(live.ask, "DELETE", path, None, **headers)


async def test_take_back_is_refused_where_the_value_beneath_changed(wide: LiveAdmin, chromium: Chromium) -> None:
    path, pattern = (f"/sluice/limits?direction=publish&setting=tenant&name=slow-{its}" for its in ("1", "*"))
    await set_limit(wide, "", '{"messages": "7/s"}', path)
    async with desktop(wide, chromium) as page:
        await open_limit(page, "slow-1")
        await page.click("#raise")
        await page.click("#apply")
        await page.until("document.querySelector('#limit .outcome').innerText.startsWith('Changed from')")
        await page.click("#take-back")
        await page.until("document.getElementById('confirm').open")
        assert "to messages 1/s, mode enforce, from tenant slow-* (file)." in await text(page, "#confirm-effect")
        await set_limit(wide, "", '{"messages": "31/s"}', pattern)
        await page.click("#confirm-apply")
        await page.until("document.querySelector('#confirm .outcome').innerText.startsWith('It has changed meanwhile')")
        assert [key for key in wide.state().kept if "slow-1" in str(key)]
        assert "to messages 31/s, mode enforce, from tenant slow-* (rest)." in await text(page, "#confirm-effect")
        await page.click("#confirm-apply")
        await page.until(
            "document.querySelector('#confirm .outcome').innerText.startsWith('Taken back: messages 31/s')"
        )
        assert not [key for key in wide.state().kept if "slow-1" in str(key)]
        await page.press("Escape")
        assert await text(page, "#limit .outcome") == ""
        await page.until("document.getElementById('effect').innerText.startsWith('No change yet: messages 31/s,')")


async def test_take_back_of_null_says_what_holds_already(wide: LiveAdmin, chromium: Chromium) -> None:
    await set_limit(wide, "", "null", "/sluice/limits?direction=publish&setting=tenant&name=slow-1")
    async with desktop(wide, chromium) as page:
        await open_limit(page, "slow-1")
        assert (await take_back(page)).startswith(
            "From messages 1/s, mode enforce: what is set here, set by anonymous, limits nothing, and counts as not "
            "set, to messages 1/s, mode enforce, from tenant slow-* (file)."
        )


async def test_tenant_takes_its_own_value_back(page: Page, live: LiveAdmin) -> None:
    await sign_in(page, ACME)
    await page.click("#limits tbody button.link")
    await page.until("document.getElementById('effect').innerText.includes('within it')")
    assert await page.value("document.getElementById('take-back').hidden")
    await page.click("#lower")
    await page.click("#apply")
    await page.until("document.querySelector('#limit .outcome').innerText.startsWith('Changed')")
    await page.click("#take-back")
    await page.until("document.getElementById('confirm').open")
    assert "set by acme to messages 5/h, mode enforce, the value of the file" in await text(page, "#confirm-effect")
    await page.click("#confirm-apply")
    await page.until("document.querySelector('#confirm .outcome').innerText.startsWith('Taken back')")
    assert not [key for key in live.state().kept if "acme/shop" in str(key)]


async def take_back(page: Page) -> str:
    """Take back what was set, and return the effect that was shown before."""
    await page.click("#take-back")
    await page.until("document.getElementById('confirm').open")
    effect = await text(page, "#confirm-effect")
    await page.click("#confirm-apply")
    await page.until("document.querySelector('#confirm .outcome').innerText.startsWith('Taken back')")
    await page.press("Escape")
    return effect


async def test_take_back_names_a_tenants_own_wider_value(page: Page, live: LiveAdmin) -> None:
    await set_limit(live, ACME, '{"messages": "7/h"}', SHOP.replace("=namespace", "=topic_of_namespace"))
    await set_limit(live, ACME, '{"messages": "3/h"}', SHOP.replace("=namespace", "=topic") + "/orders")
    await sign_in(page, ACME)
    await open_limit(page, "persistent://acme/shop/orders", "topic")
    assert (await take_back(page)).startswith(
        "From messages 3/h, mode enforce, set by acme to messages 7/h, mode enforce, "
        "from topic of namespace acme/shop (tenant)."
    )


async def test_take_back_is_refused_where_the_wider_own_value_changed(page: Page, live: LiveAdmin) -> None:
    wide = SHOP.replace("=namespace", "=topic_of_namespace")
    await set_limit(live, ACME, '{"messages": "7/h"}', wide)
    await set_limit(live, ACME, '{"messages": "3/h"}', SHOP.replace("=namespace", "=topic") + "/orders")
    await sign_in(page, ACME)
    await open_limit(page, "persistent://acme/shop/orders", "topic")
    await page.click("#take-back")
    await page.until("document.getElementById('confirm').open")
    assert "to messages 7/h, mode enforce, from topic of namespace" in await text(page, "#confirm-effect")
    await set_limit(live, ACME, '{"messages": "9/h"}', wide)
    await page.click("#confirm-apply")
    await page.until("document.querySelector('#confirm .outcome').innerText.startsWith('It has changed meanwhile')")
    assert "to messages 9/h, mode enforce, from topic of namespace" in await text(page, "#confirm-effect")
    assert [key for key in live.state().kept if "orders" in str(key)]


async def test_tenant_takes_back_a_value_that_is_hidden(page: Page, live: LiveAdmin) -> None:
    await set_limit(live, ACME, '{"messages": "4/h"}')
    await set_limit(live, OPS, '{"messages": "2/h"}')
    await sign_in(page, ACME)
    await open_limit(page, "acme/shop", "namespace")
    effect = await take_back(page)
    assert effect.startswith(
        "From messages 4/h, mode enforce, set by acme to messages 2/h, mode enforce, the operator's value."
    )
    assert messages_of(live, "acme/shop") == "2 enforce"
    await page.until("document.getElementById('take-back').hidden")


async def test_operator_takes_back_its_own_value_then_a_tenants(page: Page, live: LiveAdmin) -> None:
    await set_limit(live, ACME, '{"messages": "3/h", "bytes": "1kB"}')
    await set_limit(live, OPS, '{"messages": "2/h", "bytes": "5kB"}')
    await sign_in(page, OPS)
    await open_limit(page, "acme/shop", "namespace")
    effect = await take_back(page)
    assert effect.startswith(
        "From messages 2/h, bytes 5KB/s, mode enforce, set by ops to messages 5/h, mode enforce, the value of the file."
    )
    assert effect.endswith(
        "The tenant's own value, messages 3/h, bytes 1KB/s, mode enforce, stays: the stricter of both holds."
    )
    assert messages_of(live, "acme/shop") == "5 enforce"
    await page.until("document.getElementById('effect').innerText.startsWith('No change yet: messages 5/h,')")
    effect = await take_back(page)
    tenants = "messages 3/h, bytes 1KB/s, mode enforce"
    assert effect.startswith(f"From {tenants}, set by acme to messages 5/h, mode enforce, the value of the file.")
    assert not [key for key in live.state().kept if "acme/shop" in str(key)]


async def test_operator_changes_its_own_value_beside_a_tenants(page: Page, live: LiveAdmin) -> None:
    await set_limit(live, ACME, '{"messages": "2/h"}')
    await sign_in(page, OPS)
    await open_limit(page, "acme/shop", "namespace")
    assert "from namespace acme/shop (tenant, by acme)" in await text(page, "#limit-note")
    assert await page.value("document.getElementById('change-messages').value") == "5/h"
    stays = "The tenant's own value, messages 2/h, mode enforce, stays: the stricter of both holds."
    await page.click("#raise")
    effect = await text(page, "#effect")
    assert effect.startswith("From messages 5/h, mode enforce to messages 10/h, mode enforce.")
    assert effect.endswith(stays)
    await page.click("#apply")
    await page.until("document.querySelector('#limit .outcome').innerText.startsWith('Changed')")
    assert messages_of(live, "acme/shop") == "10 enforce"
    await page.click("#observe")
    effect = await text(page, "#effect")
    assert effect.startswith("From messages 10/h, mode enforce to messages 10/h, mode observe.")
    assert effect.endswith(stays)
    await page.click("#apply")
    await page.until("document.querySelector('#limit .outcome').innerText.includes('mode observe')")
    assert messages_of(live, "acme/shop") == "10 observe"
    await page.click("#raise")
    assert "From messages 10/h, mode observe to messages 20/h, mode observe." in await text(page, "#effect")


async def test_tenants_value_that_a_lower_one_hides_is_said(page: Page, live: LiveAdmin) -> None:
    await set_limit(live, ACME, '{"messages": "4/h"}')
    await set_limit(live, OPS, '{"messages": "2/h"}')
    await sign_in(page, OPS)
    await open_limit(page, "acme/shop", "namespace")
    await page.write("#change-messages", "400/h")
    effect = await text(page, "#effect")
    assert effect.startswith("From messages 2/h, mode enforce to messages 400/h, mode enforce.")
    assert effect.endswith("The tenant's own value, messages 4/h, mode enforce, stays: the stricter of both holds.")


async def test_operator_without_a_value_begins_with_none(page: Page, live: LiveAdmin) -> None:
    await set_limit(live, OPS, "null")
    await set_limit(live, ACME, '{"messages": "2/h"}')
    await sign_in(page, OPS)
    await open_limit(page, "acme/shop", "namespace")
    await page.write("#change-messages", "4/h")
    effect = await text(page, "#effect")
    assert effect.startswith("From no limit to messages 4/h, mode enforce.")
    assert effect.endswith("The tenant's own value, messages 2/h, mode enforce, stays: the stricter of both holds.")


async def open_unread(page: Page, level: str, name: str) -> None:
    """Open the dialog of a limit whose value cannot be changed, and wait for its note."""
    await page.value(f"void openLimit({json.dumps({'direction': 'publish', 'level': level, 'name': name})})")
    await page.until("document.getElementById('limit-note').innerText.length > 0")


async def test_limit_that_a_tenant_may_not_change_is_shown(page: Page) -> None:
    await sign_in(page, ACME)
    await open_unread(page, "role", "billing")
    assert await text(page, "#limit-note") == "Not at work now; an operator's token changes it."
    assert await text(page, "#limit .outcome") == ""
    assert await page.value("document.getElementById('change').hidden")
    await page.until("state.looks > 2")


async def test_limit_is_read_at_a_later_look_after_a_refusal(page: Page) -> None:
    await sign_in(page, OPS)
    await page.until("!state.isLooking")
    await come_between(page, "GET /sluice/limiters/value", REFUSED_NOW)
    await page.click("#limits tbody button.link")
    await page.until("document.querySelector('#limit .outcome').innerText === 'too many requests'")
    await page.until("document.getElementById('problem').innerText === 'too many requests'")
    await page.value("release()")
    await page.until("document.getElementById('effect').innerText.includes('within it')")
    assert await page.value("document.getElementById('change-messages').value") == "5/h"
    await page.until("document.querySelector('#limit .outcome').innerText === ''")


async def test_limit_has_the_hour_before_the_page_was_opened(page: Page, live: LiveAdmin) -> None:
    history = live.admin.history

    async def sample(minutes_ago: int) -> None:
        now = live.admin.engine.clock()
        history._clock = lambda: now - minutes_ago * 60 * 10**9
        for _ in history.sampling():
            pass
        history._clock = live.admin.engine.clock

    for minutes_ago in (50, 30, 10):
        live.run(sample(minutes_ago))
    await sign_in(page, OPS)
    await page.click("#limits tbody button.link")
    await page.until("document.getElementById('chart-note').innerText.includes('The last hour')")
    assert "of which 30 min" in await text(page, "#chart-note")
    points = await page.value(
        "[...document.getElementById('chart-line').points].map((each) => Math.round(each.x / 10))"
    )
    assert points[:2] == [30, 50], "600 units are an hour"


async def test_pause_lets_rows_stay(page: Page, live: LiveAdmin) -> None:
    await sign_in(page, OPS)
    await page.click("#pause")
    assert await page.value("document.getElementById('pause').ariaPressed") == "true"
    assert await text(page, "#pause") == "Go on"

    async def come() -> None:
        hold(live.admin, "persistent://acme/shop/late", 4)

    await page.until("!state.isLooking")
    live.run(come())
    await page.value("look()")
    assert await page.value(HELD_ROWS) == 3
    await page.click("#pause")
    await page.until(f"{HELD_ROWS} === 4")
    assert await text(page, "#pause") == "Pause"


async def test_rows_are_bounded_however_many_streams_are_held(page: Page, live: LiveAdmin) -> None:
    async def come() -> None:
        for number in range(10, 310):
            hold(live.admin, "persistent://acme/shop/crowd", number)

    live.run(come())
    await sign_in(page, OPS)
    assert await page.value(HELD_ROWS) == 200
    assert "200 held streams of 303" in await text(page, "#streams-note")


async def test_block_shows_its_effect_before_and_is_lifted_again(page: Page, live: LiveAdmin) -> None:
    await sign_in(page, OPS)
    await page.write("#search", "returns")
    await page.press("Enter")
    await page.until(f"{HELD_ROWS} === 1")
    await page.click("#streams tbody td:last-child button")
    await page.click("#block-choices label:nth-of-type(3) input")
    await page.until("!document.getElementById('block-apply').disabled")
    effect = await text(page, "#block-effect")
    assert effect.startswith("From not blocked to blocked: 1 stream of role shop, everywhere ends now, 1 of them held")
    assert not live.state().in_force.blocks
    await page.write("#block-reason", "too loud")
    await page.click("#block-apply")
    await page.until("document.querySelector('#block .outcome').innerText.startsWith('Blocked')")
    (rule,) = live.state().in_force.blocks
    assert (str(rule.key), rule.reason) == ("role 'shop'", "too loud")
    await page.press("Escape")
    await page.click("#blocks tbody button")
    assert "to not blocked" in await text(page, "#confirm-effect")
    await page.click("#confirm-apply")
    await page.until("document.querySelector('#confirm .outcome').innerText.startsWith('Unblocked')")
    assert not live.state().in_force.blocks


async def test_kick_shows_its_effect_before(page: Page, live: LiveAdmin) -> None:
    live.admin.engine.sessions.add(Client())
    await sign_in(page, OPS)
    await page.click("#streams tbody td:last-child button:nth-of-type(2)")
    await page.click("#kick-choices label:nth-of-type(1) input")
    await page.until("!document.getElementById('kick-apply').disabled")
    effect = await text(page, "#kick-effect")
    assert effect.startswith("1 connection and 2 streams of connection ")
    assert effect.endswith(" end now; clients may come again at once.")
    assert live.admin.engine.counters.kicked == {}
    await page.click("#kick-apply")
    await page.until("document.querySelector('#kick .outcome').innerText.startsWith('Kicked')")
    assert live.admin.engine.counters.kicked == {"connections": 1, "streams": 2}


async def click_choice(page: Page, dialog: str, text_of_it: str) -> None:
    """Choose what to block or to kick."""
    label = f"[...document.querySelectorAll('#{dialog}-choices label')]"
    await page.value(f"{label}.find((each) => each.innerText.startsWith({json.dumps(text_of_it)})).id = 'wanted'")
    await page.click("#wanted")
    await page.value("document.getElementById('wanted').removeAttribute('id')")


@pytest.mark.parametrize(
    ("dialog", "button", "counting"),
    [("block", 1, "GET /sluice/streams?address"), ("kick", 2, "POST /sluice/kick?address")],
)
async def test_button_is_for_the_choice_whose_effect_is_shown(
    page: Page, live: LiveAdmin, dialog: str, button: int, counting: str
) -> None:
    await sign_in(page, OPS)
    await page.click(f"#streams tbody td:last-child button:nth-of-type({button})")
    for answer, shown in ((HELD_BACK, "Counting"), (REFUSED_NOW, "The effect is not known: choose again.")):
        await click_choice(page, dialog, "topic")
        await page.until(f"!document.getElementById('{dialog}-apply').disabled")
        assert "topic acme/shop" in await text(page, f"#{dialog}-effect")
        await come_between(page, counting, answer)
        await click_choice(page, dialog, "address")
        await page.until(f"document.getElementById('{dialog}-effect').innerText.startsWith('{shown}')")
        assert await page.value(f"document.getElementById('{dialog}-apply').disabled")
        await page.value("release()")
    await click_choice(page, dialog, "address")
    await page.until(f"!document.getElementById('{dialog}-apply').disabled")
    assert "address 192.0.2." in await text(page, f"#{dialog}-effect")
    assert await text(page, f"#{dialog} .outcome") == ""
    assert not live.state().in_force.blocks


async def test_second_press_sends_no_second_request(page: Page, live: LiveAdmin) -> None:
    live.admin.engine.sessions.add(Client())
    await sign_in(page, OPS)
    await page.click("#streams tbody td:last-child button:nth-of-type(2)")
    await click_choice(page, "kick", "topic")
    await page.until("!document.getElementById('kick-apply').disabled")
    await come_between(page, "POST /sluice/kick", HELD_BACK)
    await page.value("for (const each of [1, 2]) at('kick-form').requestSubmit()")
    assert len(await page.value("sent")) == 1
    await page.value("release()")
    await page.until("document.querySelector('#kick .outcome').innerText.startsWith('Kicked')")
    await page.press("Escape")
    await open_limit(page, "acme/shop", "namespace")
    await page.click("#raise")
    await come_between(page, "PUT /sluice/limits", HELD_BACK)
    await page.click("#apply")
    await page.value("at('change').requestSubmit()")
    await page.value("refreshLimit()")
    assert await page.value("document.getElementById('apply').disabled")
    assert len(await page.value("sent")) == 1
    await page.value("release()")
    await page.until("document.querySelector('#limit .outcome').innerText.startsWith('Changed')")
    assert messages_of(live, "acme/shop") == "10 enforce"


async def test_change_that_is_done_is_said_though_a_look_is_refused(page: Page, live: LiveAdmin) -> None:
    unread = "What holds now could not be read: too many requests"
    await sign_in(page, OPS)
    await open_limit(page, "acme/shop", "namespace")
    await page.click("#raise")
    await page.click("#pause")
    await come_between(page, "GET /sluice/streams", REFUSED_NOW)
    await page.click("#apply")
    await page.until("document.querySelector('#limit .outcome').innerText.includes('could not be read')")
    outcome = await text(page, "#limit .outcome")
    assert outcome.startswith("Changed from messages 5/h, mode enforce to messages 10/h, mode enforce.")
    assert outcome.endswith(unread)
    assert messages_of(live, "acme/shop") == "10 enforce"
    await page.click("#take-back")
    await page.click("#confirm-apply")
    await page.until("document.querySelector('#confirm .outcome').innerText.includes('could not be read')")
    assert (await text(page, "#confirm .outcome")).startswith("Taken back: messages 5/h, mode enforce holds again.")
    assert await page.value("document.getElementById('confirm-apply').disabled")
    await page.press("Escape")
    await page.press("Escape")
    await page.value("release()")
    await page.click("#streams tbody td:last-child button")
    await click_choice(page, "block", "topic")
    await page.until("!document.getElementById('block-apply').disabled")
    await come_between(page, "GET /sluice/blocks", REFUSED_NOW)
    await page.click("#block-apply")
    await page.until("document.querySelector('#block .outcome').innerText.includes('could not be read')")
    outcome = await text(page, "#block .outcome")
    assert outcome.startswith("Blocked. 0 connections and ")
    assert outcome.endswith(unread)
    assert await page.value("document.getElementById('block-apply').disabled")


async def test_token_of_a_tenant_kicks_its_topic_and_itself(page: Page) -> None:
    await sign_in(page, ACME)
    buttons = await page.value("[...document.querySelectorAll('#streams tbody button')].map((each) => each.innerText)")
    assert set(buttons) & {"Block…", "Kick…"} == {"Kick…"}, "a block of a tenant's token is refused"
    await page.click("#streams tbody td:last-child button")
    await page.until("document.querySelectorAll('#kick-choices input').length === 2")


async def test_token_of_a_tenant_sees_its_own_alone(page: Page) -> None:
    await sign_in(page, ACME)
    assert await page.value(HELD_ROWS) == 2
    await page.until("document.getElementById('limits-note').innerText.startsWith('1 limit')")
    shown = await text(page, "body")
    assert "other" not in shown
    assert "acme: may change tenants acme" in shown
    for part in ("fleet", "blocks-part", "drain-part"):
        assert await page.value(f"document.getElementById('{part}').hidden")


async def test_token_that_may_read_is_offered_no_change(page: Page) -> None:
    await sign_in(page, VIEWER)
    assert (
        await page.value("[...document.querySelectorAll('.only-write')].some((each) => each.checkVisibility())")
        is False
    )
    await page.click("#limits tbody button.link")
    await page.until("document.getElementById('neighbours-note').innerText.includes('held')")
    assert await page.value("document.getElementById('apply').checkVisibility()") is False


async def test_keyboard_opens_a_limit_and_leaves_it_at_any_time(page: Page) -> None:
    await sign_in(page, OPS)
    await page.value("document.querySelector('#limits tbody button').focus()")
    await page.press("Enter")
    await page.until("document.getElementById('limit').open")
    await page.press("Escape")
    await page.until("!document.getElementById('limit').open")
    await page.value("void openLimit(state.limits.limiters[0]), at('limit').close()")
    await page.until("state.looks > 1")
    assert await page.value("document.activeElement.closest('table')?.id") == "limits"


async def test_use_of_a_limit_is_in_one_line(wide: LiveAdmin, chromium: Chromium) -> None:
    async with chromium.page() as page:
        for width in (800, 1280):
            await page.look_as(width, 900)
            await opened(page, wide.address)
            await page.until("document.querySelectorAll('#limits tbody tr').length > 0")
            meters = "state.isPaused = true, [...document.querySelectorAll('#limits meter')]"
            await page.value(f"{meters}.map((each) => (each.nextElementSibling.textContent = '100 %'))")
            top = "getBoundingClientRect().top"
            is_beside = f"Math.abs(each.nextElementSibling.{top} - each.{top}) < 16"
            is_whole = "each.nextElementSibling.getClientRects().length === 1"
            assert await page.value(f"{meters}.every((each) => {is_whole} && {is_beside})")
            assert await page.value("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_phone_has_no_sideways_scrolling(page: Page, scheme: str) -> None:
    await page.look_as(360, 740, scheme=scheme)
    await sign_in(page, OPS)
    assert await page.value("document.documentElement.scrollWidth") <= 360
    await page.click("#limits tbody button.link")
    await page.until("document.getElementById('limit').open")
    assert await page.value("document.getElementById('limit').scrollWidth") <= 360
    assert await page.violations() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_page_and_dialogs_are_accessible(page: Page, scheme: str) -> None:
    await page.look_as(1280, 900, scheme=scheme)
    assert await page.violations() == []
    await sign_in(page, OPS)
    assert await page.violations() == []
    row = "#streams tbody td:last-child button"
    for button, dialog in ((row, "block"), (f"{row}:nth-of-type(2)", "kick"), ("#limits tbody button.link", "limit")):
        await page.click(button)
        await page.until(f"document.getElementById('{dialog}').open")
        assert await page.violations() == []
        await page.press("Escape")


@asynccontextmanager
async def desktop(live: LiveAdmin, chromium: Chromium) -> AsyncIterator[Page]:
    """The console of a proxy without tokens, in a large window."""
    async with chromium.page() as page:
        await page.look_as(1280, 900)
        await opened(page, live.address)
        yield page


async def opened(page: Page, address: str) -> None:
    """Open the console of a proxy without tokens."""
    await page.open(f"http://{address}/console")
    await page.until("!document.getElementById('overview').hidden")


async def test_drain_shows_its_effect_before(chromium: Chromium) -> None:
    config = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "drain": {"delay": 60, "timeout": 120}}
    async with broker_on_loopback() as broker, chromium.page() as page:
        proxy = Proxy(ConfigSource(None, lambda: Config.model_validate({"broker": f"pulsar://{broker}", **config})))
        listen, admin = await proxy.start()
        client = await connect_to(listen)
        client.send(connect(), producer())
        assert [await client.hear() for _ in range(2)] == [connected(), producer_success()]
        await page.look_as(1280, 900)
        await opened(page, admin)
        await page.click("#drain")
        await page.until("document.getElementById('confirm').open")
        effect = await text(page, "#confirm-effect")
        assert effect.startswith("From serving to draining: 1 connection with 1 stream are asked to go on at other")
        assert await page.violations() == []
        assert proxy.drain.phase == "serving"
        await page.click("#confirm-apply")
        await page.until("document.querySelector('#confirm .outcome').innerText.startsWith('Draining')")
        assert (proxy.drain.cause, proxy.drain.phase) == ("rest", "delaying")
        await page.press("Escape")
        await page.until("document.getElementById('drain').disabled")
        await page.until("document.getElementById('notices').innerText.includes('draining (rest)')")
        client.writer.close()
        await proxy.stop()


class Service:
    """One address of several proxies, as a Service of Kubernetes: connections go to the one that is chosen."""

    def __init__(self, chosen: str) -> None:
        self._chosen = chosen
        self._open = set[asyncio.StreamWriter]()

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def choose(self, address: str) -> None:
        """Let later requests reach another proxy."""
        self._chosen = address
        for writer in self._open:
            writer.close()

    async def stop(self) -> None:
        self._server.close()
        self.choose("")
        await until(lambda: not self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._chosen.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        self._open |= {writer, back}
        await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))
        for each in (writer, back):
            with contextlib.suppress(ConnectionError):
                await each.wait_closed()
        self._open -= {writer, back}


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
    writer.close()


FLEET = {"name": "front", "namespace": "public/sluice"}


def proxy_of(name: str, broker: str, **settings: Any) -> Proxy:
    """Make a proxy before a broker, on ports of its own."""
    own = {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "broker": f"pulsar://{broker}", "proxy_id": name}
    return Proxy(ConfigSource(None, partial(Config.model_validate, own | settings)))


async def test_page_acts_at_the_process_that_it_shows(chromium: Chromium) -> None:
    proxies = list[Proxy]()
    async with broker_on_loopback() as broker, chromium.page() as page:
        for name in ("sluice-0", "sluice-1", "sluice-1"):
            proxies.append(proxy_of(name, broker))
        admins = [(await proxy.start())[1] for proxy in proxies]
        service = Service(admins[0])
        await page.look_as(1280, 900)
        await opened(page, await service.start())
        await page.click("#drain")
        await page.until("document.getElementById('confirm').open")
        service.choose(admins[1])
        await page.click("#confirm-apply")
        await page.until("document.querySelector('#confirm .outcome').innerText.length > 0")
        outcome = await text(page, "#confirm .outcome")
        assert outcome.startswith("sluice-1 has answered, and this page is of sluice-0: the address leads to several")
        assert "Nothing was done. Open the console at the address of one proxy" in outcome
        assert [proxy.drain.phase for proxy in proxies] == ["serving"] * 3
        await page.press("Escape")
        await page.until("document.getElementById('problem').innerText.startsWith('sluice-1 has answered')")
        assert await page.violations() == []
        await come_between(page, "GET /sluice/streams", HELD_BACK)
        await page.until("sent.length > 0")
        await page.click("#go-on")
        await page.value("release()")
        await page.until("document.getElementById('proxy').innerText.startsWith('sluice-1,')")
        await page.until("document.getElementById('problem').hidden && document.getElementById('go-on').hidden")
        service.choose(admins[2])
        await page.until(
            "document.getElementById('problem').innerText.startsWith('Another run of sluice-1 has answered')"
        )
        await page.click("#go-on")
        await page.until("document.getElementById('problem').hidden && !document.getElementById('overview').hidden")
        await page.click("#drain")
        await page.click("#confirm-apply")
        await page.until("document.querySelector('#confirm .outcome').innerText.startsWith('Draining')")
        assert [proxy.drain.phase == "serving" for proxy in proxies] == [True, True, False]
        await service.stop()
        for proxy in proxies:
            await proxy.stop()


GOLD_IN_FLEET = {"plans": {"gold": {"publish": {"messages": 100}}}, "tenants": {"gold-*": "gold"}}


def has_value(proxy: Proxy, tenant: str, messages: int) -> bool:
    """Whether a limit of messages is set for a tenant by its own name."""
    value = proxy.service.layers.of_operator(("publish", Setting.TENANT, tenant))
    return value is not None and value.limit.messages == rate(messages)


async def test_answer_of_another_program_is_not_taken(page: Page, live: LiveAdmin) -> None:
    await sign_in(page, OPS)
    await page.until("!state.isLooking")
    page_of_another = "Promise.resolve(new Response('<h1>Sign in</h1>', {status: 200}))"
    await come_between(page, "GET /sluice/streams", page_of_another)
    not_its = "The answer is not of this process, p: something between it and this page has answered."
    await page.until(f"document.getElementById('problem').innerText === '{not_its}'")
    assert await page.value("document.getElementById('go-on').hidden")
    await page.value("release()")
    await page.until("document.getElementById('problem').hidden")
    await page.click("#streams tbody td:last-child button")
    await click_choice(page, "block", "topic")
    await page.until("!document.getElementById('block-apply').disabled")
    await come_between(page, "POST /sluice/blocks", page_of_another)
    await page.click("#block-apply")
    await page.until("document.querySelector('#block .outcome').innerText.length > 0")
    outcome = await text(page, "#block .outcome")
    assert outcome == f"{not_its} It is not known whether anything was done."
    await page.value("release()")
    assert not live.state().in_force.blocks


async def test_member_changes_the_limit_of_the_whole_fleet(chromium: Chromium) -> None:
    proxies = list[Proxy]()
    with running_broker() as (_, broker):
        for name in ("sluice-0", "sluice-1"):
            proxies.append(proxy_of(name, broker, fleet=FLEET, limits=GOLD_IN_FLEET))
        addresses = [await proxy.start() for proxy in proxies]
        clients = [await connect_to(listen) for listen, _ in addresses]
        for client in clients:
            client.send(connect(), producer(topic="persistent://gold-00/a/x"))
            await client.hear()
            await client.hear()
        async with chromium.page() as page:
            await page.look_as(1280, 900)
            await opened(page, addresses[0][1])
            await page.until("(state.limits?.limiters[0]?.in_force.share_messages ?? 1) < 0.9 && others().length === 1")
            await page.until("document.getElementById('counted').innerText.endsWith(': sluice-1.')")
            counted = await text(page, "#counted")
            assert counted.startswith("Streams, use and waits are of this process alone, sluice-0. Other members count")
            await page.until(
                "document.querySelector('#limits td:nth-child(2)').innerText.endsWith('this member\\'s share of 100/s')"
            )
            await open_limit(page, "gold-00")
            assert await page.value("document.getElementById('change-messages').value") == "100/s"
            assert "in this member, its share of messages 100/s, mode enforce" in await text(page, "#limit-note")
            await page.click("#lower")
            effect = await text(page, "#effect")
            assert effect.startswith(
                "From messages 100/s, mode enforce to messages 50/s, mode enforce, for all members together. "
                "1 stream of this process is within it"
            )
            await page.click("#apply")
            await page.until("document.querySelector('#limit .outcome').innerText.startsWith('Changed from')")
            for proxy in proxies:
                await until(partial(has_value, proxy, "gold-00", 50))
        for client in clients:
            client.writer.close()
        for proxy in proxies:
            await proxy.stop()


async def test_change_in_this_member_alone_is_said(tmp_path: Path, chromium: Chromium) -> None:
    tokens = tmp_path / "tokens.yaml"
    tokens.touch(mode=0o600)
    tokens.write_text(yaml.safe_dump(TOKENS))
    limits = {
        "addresses": {"127.0.0.1": {"publish": {"messages": 100}}},
        "tenants": {"acme": {"publish": {"messages": 100}}},
    }
    member = {"fleet": FLEET, "policies": {"topic": "none"}, "limits": limits}
    with running_broker() as (_, broker):
        proxy = proxy_of("sluice-0", broker, admin_access={"tokens": str(tokens), **UNHURRIED}, **member)
        listen, admin = await proxy.start()
        client = await connect_to(listen)
        client.send(connect(), producer(topic="persistent://acme/a/x"))
        await client.hear()
        await client.hear()
        async with chromium.page() as page:
            await page.look_as(1280, 900)
            await page.open(f"http://{admin}/console")
            for token, level, its in ((OPS, "address", "127.0.0.1"), (ACME, "tenant", "acme")):
                await page.write("#token", token)
                await page.press("Enter")
                await page.until("!document.getElementById('overview').hidden")
                await open_limit(page, its, level)
                await page.click("#lower")
                assert "The change is made in this member alone" in await text(page, "#effect")
                await page.press("Escape")
                await page.click("#leave")
        client.writer.close()
        await proxy.stop()


async def test_page_of_each_member_lists_the_fleet(chromium: Chromium) -> None:
    proxies = list[Proxy]()
    with running_broker() as (_, broker):
        for name in ("sluice-0", "sluice-1"):
            proxies.append(proxy_of(name, broker, fleet=FLEET))
        admins = [(await proxy.start())[1] for proxy in proxies]
        async with chromium.page() as page:
            await page.look_as(1280, 900)
            for admin in admins:
                await opened(page, admin)
                await page.until("document.querySelectorAll('#members tbody tr').length === 2")
                shown = await text(page, "#fleet")
                assert "2 members" in shown
                assert all(name in shown for name in ("sluice-0", "sluice-1"))
        for proxy in proxies:
            await proxy.stop()


async def test_pictures_of_the_page_are_taken(tmp_path: Path, chromium: Chromium) -> None:
    limits = {"namespaces": {"acme/shop": {"publish_total": {"messages": "5/h", "burst_messages": 1}}}}
    made = LiveAdmin(tmp_path / "policies.db", limits=limits, admin_access=UNHURRIED)

    async def fill() -> None:
        hold(made.admin, "persistent://acme/shop/orders", 1)
        now = made.admin.engine.clock()
        for minutes_ago in (3, 2, 1):
            made.admin.history._clock = lambda: now - minutes_ago * 60 * 10**9  # noqa: B023 - called here
            for _ in made.admin.history.sampling():
                pass
        made.admin.history._clock = made.admin.engine.clock

    made.run(fill())
    await console_pictures.take(made.address, tmp_path, chromium)
    made.close()
    pictures = {each.name: each.read_bytes() for each in tmp_path.glob("*.png")}  # noqa: ASYNC240 - few, and small
    sizes = {name: struct.unpack(">II", picture[16:24]) for name, picture in pictures.items()}
    assert sizes == {name: size for name, size, _ in SHOTS} | {LIMIT: DESKTOP}
    assert len(set(pictures.values())) == len(pictures)
