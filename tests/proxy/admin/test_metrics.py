"""What Prometheus gets to see."""

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from accesslog.record import IntervalLine
from proxy.admin import limit_metrics
from proxy.admin.metrics import SluiceCollector
from proxy.observe import totals
from proxy.observe.totals import NamespaceTotals
from tests.proxy.conversation import World, consumer, let_in, publisher
from tests.proxy.wire import OTHER_TOPIC, PING, TOPIC, lookup, message, producer, send, sends

Make = Callable[..., World]
Sample = tuple[str, frozenset[tuple[str, str]]]


def collector(world: World) -> SluiceCollector:
    return SluiceCollector(world.engine, world.totals, world.access, world.intervals.settling)


def scrape(world: World, by: SluiceCollector | None = None) -> dict[Sample, float]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(by or collector(world))
    text = generate_latest(registry).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}


def labels(**pairs: str) -> frozenset[tuple[str, str]]:
    return frozenset(pairs.items())


PUBLISH = labels(tenant="acme", namespace="shop", direction="publish")
DISPATCH = labels(tenant="acme", namespace="shop", direction="dispatch")


def test_what_passed_and_what_is_held_is_told_by_namespace_and_direction(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}, "dispatch": {"messages": 1}}}})
    client, _ = publisher(world)
    client >> sends(3, size=100)
    _, broker = consumer(world)
    broker >> [message(0), message(1)]
    samples = scrape(world)
    assert samples["sluice_messages_received_total", PUBLISH] == 3
    assert samples["sluice_messages_passed_total", PUBLISH] == 1
    assert samples["sluice_bytes_received_total", PUBLISH] == 300
    assert samples["sluice_bytes_passed_total", PUBLISH] == 100
    assert samples["sluice_held_messages", PUBLISH] == 2
    assert samples["sluice_held_bytes", PUBLISH] == 200
    assert samples["sluice_messages_passed_total", DISPATCH] == 1
    assert samples["sluice_held_messages", DISPATCH] == 1
    assert samples["sluice_hold_budget_used_bytes", labels()] == world.engine.held.used > 200
    assert samples["sluice_hold_budget_most_bytes", labels()] == world.engine.held.most >= world.engine.held.used
    assert samples["sluice_hold_budget_limit_bytes", labels()] == 64 * 1024**2
    assert samples["sluice_limiters", labels()] == 2
    client.leave()
    world.advance(0.5)
    samples = scrape(world)
    assert samples["sluice_messages_dropped_total", PUBLISH] == 2
    assert samples["sluice_throttled_seconds_total", PUBLISH] == 0
    assert samples["sluice_held_messages", PUBLISH] == 0


def test_who_waits_is_told_by_level(make_world: Make) -> None:
    limits = {
        "namespaces": {"acme/shop": {"publish_total": {"messages": 1}}},
        "topics": {TOPIC: {"dispatch": {"messages": 1}}},
    }
    world = make_world(limits=limits)
    client, _ = publisher(world)
    client >> sends(3, size=100)
    _, broker = consumer(world)
    broker >> [message(0), message(1)]
    world.advance(0.25)
    samples = scrape(world)
    namespace, topic = labels(direction="publish", level="namespace"), labels(direction="dispatch", level="topic")
    assert (samples["sluice_held_streams", namespace], samples["sluice_held_streams", topic]) == (1, 1)
    assert samples["sluice_held_messages_by_level", namespace] == 2
    assert samples["sluice_held_messages_by_level", topic] == 1
    assert samples["sluice_limiter_throttled_seconds_total", namespace] == 0.25
    assert samples["sluice_limiter_messages_rejected_total", namespace] == 0


def test_what_is_rejected_and_what_would_be_held_is_told_by_namespace(make_world: Make) -> None:
    limits = {
        "topics": {
            TOPIC: {"publish": {"messages": 1, "mode": "reject"}},
            OTHER_TOPIC: {"publish": {"messages": 1, "mode": "observe"}},
        }
    }
    world = make_world(limits=limits, publish={"hold_connection": "1300"})
    client, _ = publisher(world, producer(2, OTHER_TOPIC))
    client >> sends(3, size=100)
    client >> sends(6, size=100, producer_id=2)
    world.advance(0.25)
    samples = scrape(world)
    assert samples["sluice_messages_rejected_total", PUBLISH] == 2
    assert samples["sluice_bytes_rejected_total", PUBLISH] == 200
    assert samples["sluice_limiter_messages_rejected_total", labels(direction="publish", level="topic")] == 2
    assert samples["sluice_would_hold_messages", PUBLISH] == 3
    assert samples["sluice_would_exceed_messages_total", PUBLISH] == 2
    assert samples["sluice_would_throttle_seconds_total", PUBLISH] == 0.25
    assert samples["sluice_throttled_seconds_total", PUBLISH] == 0
    assert samples["sluice_held_messages", PUBLISH] == 0


def test_scrapes_cost_no_line_of_the_access_log(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, _ = publisher(world)
    client >> sends(3)
    before = len(world.lines())
    for _ in range(5):
        world.advance(0.1)
        scrape(world)
    assert len(world.lines()) == before
    world.advance(0.5)
    (line,) = world.lines(IntervalLine)
    assert (line.duration_ms, line.offered_messages, line.throttled_ms) == (1000, 3, 1000)


def test_connections_ends_and_pauses_are_told_by_fixed_words(make_world: Make) -> None:
    world = make_world(publish={"hold_connection": "100"}, limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, _ = publisher(world)
    client >> sends(30)
    world.pair()
    stranger = world.client()
    stranger.send_bytes(b"GET / HTTP/1.1\r\n")
    samples = scrape(world)
    assert samples["sluice_connections", labels(role="data")] == 1
    assert samples["sluice_connections", labels(role="lookup")] == 1
    assert samples["sluice_connections", labels(role="handshake")] == 0
    assert samples["sluice_connections_accepted_total", labels()] == 3
    assert samples["sluice_connections_ended_total", labels(cause="frame_error")] == 1
    assert samples["sluice_frame_errors_total", labels(side="client", cause="http_request")] == 1
    assert samples["sluice_reading_paused", labels(side="client", cause="hold_connection")] == 1
    assert samples["sluice_pauses_total", labels(side="client", cause="hold_connection")] == 1
    world.advance(20)
    assert scrape(world)["sluice_keep_alives_total", labels()] >= 0


def test_lookups_log_lines_and_the_loops_lag_are_told(make_world: Make) -> None:
    world = make_world(max_lookups_in_flight=1)
    client, _ = world.pair()
    client >> [lookup(1), lookup(2), PING]
    world.engine.slices.lateness.timer_fired(2_000_000_000)
    world.engine.slices.lateness.beat_fired(3_000_000)
    samples = scrape(world)
    assert samples["sluice_lookups_in_flight", labels()] == 1
    assert samples["sluice_lookups_refused_total", labels()] == 1
    assert samples["sluice_loop_lag_max_seconds", labels()] == 2
    assert samples["sluice_loop_lag_seconds_total", labels()] == 2
    assert samples["sluice_timer_lateness_seconds_bucket", labels(le="1")] == 0
    assert samples["sluice_timer_lateness_seconds_bucket", labels(le="+Inf")] == 1
    assert samples["sluice_added_latency_seconds_bucket", labels(le="0.003")] == 1
    assert samples["sluice_added_latency_seconds_bucket", labels(le="0.002")] == 0
    assert samples["sluice_added_latency_seconds_sum", labels()] == 0.003
    assert samples["sluice_access_log_lines_total", labels()] == len(world.lines())
    assert samples["sluice_access_log_lines_dropped_total", labels()] == 0
    assert samples["sluice_access_log_files_deleted_total", labels()] == 0


def test_peaks_are_the_same_for_all_scrapers(make_world: Make) -> None:
    world = make_world()
    collector = SluiceCollector(world.engine, world.totals, world.access, world.intervals.settling)
    world.engine.slices.lateness.timer_fired(2_000_000_000)

    def peak() -> float:
        (sample,) = next(each for each in collector.collect() if each.name == "sluice_loop_lag_max_seconds").samples
        return sample.value

    assert [peak(), peak()] == [2, 2]
    world.advance(60)
    assert [peak(), peak()] == [2, 2], "the minute before is shown beside the present one"
    world.advance(60)
    peak()
    assert peak() < 2


def test_limits_have_rate_use_and_waiting_streams(make_world: Make) -> None:
    limits = {"tenants": {"acme": {"publish": {"messages": 10, "burst_messages": 10}}}}
    world = make_world(limits=limits)
    client, _ = publisher(world)
    client >> sends(12, size=100)
    samples = scrape(world)
    limit = {"direction": "publish", "level": "tenant", "name": "acme", "mode": "enforce"}
    assert samples["sluice_limit_per_second", labels(**limit, unit="messages")] == 10
    assert samples["sluice_limit_burst", labels(**limit, unit="messages")] == 10
    assert samples["sluice_limit_used_total", labels(**limit, unit="messages")] == 10
    assert ("sluice_limit_used_total", labels(**limit, unit="bytes")) not in samples, "bytes are not limited"
    assert samples["sluice_limit_waiting_streams", labels(**limit)] == 1
    world.advance(0.05)
    assert samples["sluice_limit_throttled_seconds_total", labels(**limit)] == 0
    assert scrape(world)["sluice_limit_throttled_seconds_total", labels(**limit)] == 0.05


def test_fullest_limits_are_shown_where_there_are_many(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_metrics, "MOST_LIMITS", 1)
    limits = {topic: {"publish": {"messages": 1000}} for topic in (TOPIC, OTHER_TOPIC)}
    world = make_world(limits={"topics": limits, "tenants": {"acme": {"publish": {"messages": 5000}}}})
    client, _ = publisher(world, producer(2, OTHER_TOPIC))
    client >> sends(5)
    client >> sends(9, producer_id=2)
    names = {dict(of)["name"] for name, of in scrape(world) if name == "sluice_limit_per_second"}
    assert names == {"acme", OTHER_TOPIC}, "limits of topics do not push out those of tenants"


def limits_of(samples: dict[Any, float]) -> set[str]:
    return {dict(of)["name"] for name, of in samples if name == "sluice_limit_per_second"}


@pytest.mark.parametrize(
    "entry", [f"topic {TOPIC}", "topic persistent://acme/*/orders", "topic persistent://*/shop/o*", "topic *"]
)
def test_named_limits_are_shown_however_little_they_are_used(
    make_world: Make, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    monkeypatch.setattr(limit_metrics, "MOST_LIMITS", 1)
    world = make_world(limits={"each_topic": {"publish": {"messages": 1000}}})
    client, _ = publisher(world, producer(2, OTHER_TOPIC))
    client >> [*sends(1), *sends(90, producer_id=2)]
    scraped = collector(world)
    assert limits_of(scrape(world, scraped)) == {OTHER_TOPIC}
    scraped.choose_limits([entry, "tenant nobody"])
    assert limits_of(scrape(world, scraped)) == {TOPIC, OTHER_TOPIC}
    scraped.choose_limits([])
    world.advance(limit_metrics.PLACE_NS / 1e9)
    client >> sends(90, producer_id=2)
    assert limits_of(scrape(world, scraped)) == {OTHER_TOPIC}


def test_named_limits_without_room_are_counted(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_metrics, "MOST_CHOSEN", 1)
    world = make_world(limits={"each_topic": {"publish": {"messages": 1000}}})
    client, _ = publisher(world, producer(2, OTHER_TOPIC))
    client >> [*sends(1), *sends(9, producer_id=2)]
    scraped = collector(world)
    scraped.choose_limits(["topic *"])
    samples = scrape(world, scraped)
    assert limits_of(samples) == {OTHER_TOPIC}
    assert samples["sluice_limits_left_out", labels()] == 1


def of_all(scraped: SluiceCollector) -> set[str]:
    parts = [part for part in scraped.parts(all_limits=True) if part is not None]
    return {
        sample.labels["name"] for part in parts if part.name == "sluice_limit_per_second" for sample in part.samples
    }


def test_all_limits_are_shown_on_request(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_metrics, "MOST_LIMITS", 1)
    limits = {"each_topic": {"publish": {"messages": 1000}}, "producers": {"*": {"publish": {"messages": 10}}}}
    world = make_world(limits=limits)
    client, _ = publisher(world, producer(2, OTHER_TOPIC))
    client >> [*sends(1), *sends(9, producer_id=2)]
    scraped = collector(world)
    assert of_all(scraped) == {TOPIC, OTHER_TOPIC}, "limits that are named after clients never are"
    monkeypatch.setattr(limit_metrics, "MOST_ALL", 1)
    with pytest.raises(limit_metrics.TooManyLimitsError, match="metrics_limits"):
        of_all(scraped)


def test_names_that_clients_make_up_make_few_series(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_metrics, "MOST_LIMITS", 3)
    world = make_world(limits={"namespaces": {"acme/shop": {"publish": {"messages": 1000}}}})
    shown, scraped = set[str](), collector(world)
    for number in range(12):
        client, _ = publisher(world, producer(2, f"persistent://acme/shop/made-up-{number}"))
        client >> sends(5 + number, producer_id=2)
        shown |= {dict(of)["name"] for name, of in scrape(world, scraped) if name == "sluice_limit_per_second"}
        world.advance(15)
    assert len(shown) == 3
    world.advance(limit_metrics.PLACE_NS / 1e9)
    client >> sends(50, producer_id=2)
    assert "persistent://acme/shop/made-up-11" in {dict(of).get("name") for _, of in scrape(world, scraped)}


def test_names_that_a_terminal_would_obey_are_not_shown(make_world: Make) -> None:
    world = make_world(limits={"namespaces": {"acme/shop": {"publish": {"messages": 10}}}})
    client, _ = publisher(world, producer(2, "persistent://acme/shop/or\x1b[31md\u202eers"))
    client >> sends(2, producer_id=2)
    samples = scrape(world)
    assert all(value.isprintable() for _, of in samples for _, value in of)
    assert {dict(of)["name"] for name, of in samples if name == "sluice_limit_per_second"} == {TOPIC}


@pytest.mark.parametrize(
    "limits",
    [
        {"addresses": {"0.0.0.0/0": {"publish": {"messages": 10}}}},
        {"producers": {"*": {"publish": {"messages": 10}}}},
    ],
)
def test_limits_that_clients_name_are_not_shown(make_world: Make, limits: dict[str, Any]) -> None:
    world = make_world(limits=limits)
    client, _ = publisher(world)
    client >> sends(2)
    assert len(world.engine.registry.limiters) == 1
    assert not [name for name, _ in scrape(world) if name.startswith("sluice_limit_per")]


@pytest.mark.parametrize("scrapes", [0, 3])
def test_each_delay_is_counted_once(make_world: Make, scrapes: int) -> None:
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 4, "burst_messages": 1}}}})
    client, _ = publisher(world)
    client >> sends(9)
    for _ in range(4):
        for _ in range(scrapes):
            scrape(world)
        world.advance(0.75)
    samples = scrape(world)
    of = {"tenant": "acme", "direction": "publish"}
    assert samples["sluice_held_seconds_count", labels(**of)] == 8
    assert samples["sluice_held_seconds_sum", labels(**of)] == pytest.approx(9.0)
    assert samples["sluice_held_seconds_bucket", labels(**of, le="1.024")] == 4
    assert samples["sluice_held_seconds_bucket", labels(**of, le="0.128")] == 0


def test_oldest_held_streams_and_connections_are_shown(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"publish": {"messages": 1}}}})
    client, _ = publisher(world, producer(2, OTHER_TOPIC))
    client >> sends(3)
    world.advance(0.5)
    samples = scrape(world)
    assert samples["sluice_held_oldest_seconds", PUBLISH] == 0.5
    assert samples["sluice_streams", PUBLISH] == 2
    assert samples["sluice_tenant_connections", labels(tenant="acme")] == 1
    client.leave()
    world.advance(0.5)
    samples = scrape(world)
    assert samples["sluice_held_oldest_seconds", PUBLISH] == 0, "a gauge that was there stays, and is 0"
    assert samples["sluice_tenant_connections", labels(tenant="acme")] == 0


def test_tenants_over_the_bound_share_their_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "MOST_TENANTS", 2)
    namespace_totals = NamespaceTotals()
    for number in range(9):
        namespace_totals.delays_of(f"t{number}", "publish").add((1,), 5)
    assert len(namespace_totals.delays) == 5
    assert namespace_totals.delays["_others", "publish"].counts[0] == 5


def test_build_and_process_are_shown(make_world: Make) -> None:
    samples = scrape(make_world())
    (build,) = [dict(of) for name, of in samples if name == "sluice_build_info"]
    assert set(build) == {"version", "python", "compiled"}
    assert samples["process_cpu_seconds_total", labels()] > 0
    assert samples["process_resident_memory_bytes", labels()] > 1_000_000
    assert samples["process_start_time_seconds", labels()] > 1_500_000_000
    assert samples["sluice_draining", labels()] == samples["sluice_ready", labels()] == 0


def test_blocks_and_what_they_refused_are_told_by_kind(make_world: Make) -> None:
    world = make_world(blocks=[{"producer": "p"}, {"role": "r"}, {"role": "s"}])
    client, _ = world.pair()
    client >> producer(producer_name="p")
    samples = scrape(world)
    assert samples["sluice_blocks", labels(kind="role")] == 2
    assert samples["sluice_blocks", labels(kind="address")] == 0
    assert samples["sluice_blocked_total", labels(kind="producer")] == 1
    assert samples["sluice_blocked_total", labels(kind="topic")] == 0


def test_clients_cannot_make_label_sets_grow_without_bound(make_world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "MOST_NAMESPACES", 2)
    world = make_world(limits={"namespaces": {f"t/n{number}": {"publish": {"messages": 1}} for number in range(20)}})
    client, broker = world.pair()
    client >> [producer(number, f"persistent://t/n{number}/x") for number in range(20)]
    let_in(client, broker)
    for number in range(20):
        client >> [send(0, number), send(1, number)]
    samples = scrape(world)
    namespaces = {dict(key)["namespace"] for name, key in samples if name == "sluice_messages_passed_total"}
    assert len(namespaces) == 5
    assert "_others" in namespaces
    others = labels(tenant="_others", namespace="_others", direction="publish")
    assert samples["sluice_messages_passed_total", others] == 16
    assert samples["sluice_held_messages", others] == 16


def test_each_metric_has_prefix_help_text_and_bounded_labels(make_world: Make) -> None:
    world = make_world()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SluiceCollector(world.engine, world.totals, world.access, lambda: iter(())))
    families = list(registry.collect())
    assert len(families) > 20
    for family in families:
        assert family.name.startswith(("sluice_", "process_"))
        assert family.documentation
        for sample in family.samples:
            assert set(sample.labels) <= {
                "broker",
                "cause",
                "compiled",
                "direction",
                "failure",
                "found",
                "key",
                "kind",
                "le",
                "level",
                "method",
                "namespace",
                "outcome",
                "owner",
                "python",
                "result",
                "role",
                "side",
                "state",
                "tenant",
                "version",
                "what",
                "work",
            }


def test_permits_are_counted_asked_granted_and_withheld(make_world: Make) -> None:
    world = make_world(limits={"topics": {TOPIC: {"dispatch": {"messages": 10}}}})
    _, broker = consumer(world, permits=1000)
    broker >> message(0)
    samples = scrape(world)
    assert samples["sluice_permits_asked_total", DISPATCH] == 1000
    assert samples["sluice_permits_granted_total", DISPATCH] == 3
    assert samples["sluice_permits_withheld", DISPATCH] == 997


def test_what_was_passed_on_is_told_by_what_became_of_it(make_world: Make) -> None:
    world = make_world()
    world.engine.counters.admin_forwarded["done"] += 2
    samples = scrape(world)
    assert samples["sluice_admin_forwarded_total", labels(outcome="done")] == 2
    assert samples["sluice_admin_forwarded_total", labels(outcome="unreachable")] == 0
