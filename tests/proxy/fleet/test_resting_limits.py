"""Limits that come to rest, are forgotten, taken back, raised or set again: who has which share of them then."""

from fleet.messages import ShareKey
from limiter.levels import Setting
from limiter.limiter import Stream, StreamName
from limiter.policies import Change, Value
from limiter.registry import KEPT
from limiter.token_bucket import WHOLE, Limit, Rate, rate
from protocol.topic_name import parse_topic
from tests.proxy.fleet.proxies import BURST, RATE, TOPIC, World


def test_low_limit_that_one_member_uses_is_wholly_its_own(
    world: World,
) -> None:
    proxies = [world.join(per_second=0) for _ in range(4)]
    world.run(5)
    for proxy in proxies:
        proxy.policies.put("publish", Setting.TENANT, "acme", Value(Limit(Rate(1, 60 * 10**9, 1)), "file"))
        world.loop.run(lambda proxy=proxy: proxy.changed([Change("publish", Setting.TENANT, "acme")]))
        world.loop.run(proxy.offer_one)
    world.loop.advance(300)
    proxies[0].offers = True
    world.run(1)
    key = ShareKey.of("publish tenant acme", "messages")
    shares = [share.ppm for proxy in proxies for share in proxy.fleet.member.shares() if share.key == key]
    assert shares == [WHOLE, 0, 0, 0]


def test_limiter_made_again_between_two_reports_has_a_share(world: World) -> None:
    leader, _ = world.join(), world.join()
    world.run(5)
    leader.offers = True
    world.run(1)
    leader.offers = False
    world.run(1)

    def reconnect() -> None:
        now = world.loop.clock()
        leader.registry.close(leader.stream, now)
        for number in range(KEPT + 1):  # each rests, and the oldest ones are forgotten
            topic = parse_topic(f"persistent://other/n/t{number}")
            name = StreamName("publish", "other", "n", topic.full, 1)
            stream = Stream(name, (), lambda _stream, _entry: None)
            leader.registry.open(stream, topic, now)
            leader.registry.close(stream, now)
        leader.stream = Stream(StreamName("publish", "acme", "shop", TOPIC.full, 1), (), lambda _stream, _entry: None)
        leader.registry.open(leader.stream, TOPIC, now)

    leader.policies.put("publish", Setting.TOPIC_OF_NAMESPACE, "other/n", Value(Limit(rate(1)), "file"))
    world.loop.run(reconnect)
    leader.offers = True
    world.run(1)
    assert world.run(1)[0] >= 0.99 * RATE


def test_limit_that_is_set_again_has_no_earlier_share(world: World) -> None:
    leader, other = world.join(), world.join()
    key = ShareKey.of("publish tenant acme", "bytes")

    def put(size: Rate | None) -> None:
        for proxy in (leader, other):
            value = Value(Limit(rate(RATE, burst=BURST), size=size), "file")
            proxy.policies.put("publish", Setting.TENANT, "acme", value)
            world.loop.run(lambda proxy=proxy: proxy.changed([Change("publish", Setting.TENANT, "acme")]))

    put(rate(10**6))
    world.run(5)
    leader.offers = True
    world.run(2)
    assert leader.fleet.shared.share_in_force(key) == WHOLE
    put(None)
    world.run(1)
    assert leader.fleet.shared.share_in_force(key) == 0
    put(rate(10**6))
    world.run(1)
    assert leader.fleet.shared.share_in_force(key) == WHOLE


def test_raised_limit_holds_after_clients_left_a_member(world: World) -> None:
    leader, other = world.join(RATE // 4), world.join(RATE // 4)
    world.run(5)
    leader.offers = other.offers = True
    world.run(1)
    other.offers = False
    world.loop.run(lambda: other.registry.close(other.stream, world.loop.clock()))
    world.run(1)
    for proxy in (leader, other):
        world.loop.run(lambda proxy=proxy: proxy.reload(RATE))
    world.run(1)
    assert world.run(1)[0] >= 0.99 * RATE


def test_a_limit_that_is_taken_back_has_no_shares_any_more(world: World) -> None:
    leader, other = world.join(), world.join()
    world.run(5)
    leader.offers = other.offers = True
    world.run(1)
    leader.offers = other.offers = False
    for proxy in (leader, other):
        world.loop.run(lambda proxy=proxy: proxy.reload(0))
    world.loop.advance(1)
    assert [[*proxy.fleet.member.shares()] for proxy in (leader, other)] == [[], []]
