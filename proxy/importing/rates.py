"""From Pulsar's rates to those of the configuration."""

from collections.abc import Iterator

from proxy.config.yaml_text import Taken
from proxy.importing.found import Found
from proxy.policies.bodies import DispatchRate, PublishRate, ResourceGroup, SubscribeRate

PulsarRate = PublishRate | DispatchRate | SubscribeRate


def take_rate(rate: PulsarRate | None, path: tuple[str, ...], origin: str, found: Found) -> bool:
    """Add what a rate says.

    Args:
        rate: None: nothing is set.
        path: Keys of what it becomes: a section, or for subscribe rates a value.
        origin: Where it was set, for people.
        found: Where to.

    Returns:
        Whether it limits anything: numbers of 0 and below are none, as with Pulsar.
    """
    taken = list(_taken(rate, path, origin)) if rate is not None else []
    found.taken += taken
    return bool(taken)


def _taken(rate: PulsarRate, path: tuple[str, ...], origin: str) -> Iterator[Taken]:
    if isinstance(rate, PublishRate):
        numbers = (rate.publishThrottlingRateInMsg, rate.publishThrottlingRateInByte)
        yield from _both("publish", numbers, 1, path, origin)
    elif isinstance(rate, DispatchRate):
        numbers = (rate.dispatchThrottlingRateInMsg, rate.dispatchThrottlingRateInByte)
        yield from _both("dispatch", numbers, max(1, rate.ratePeriodInSecond), path, origin)
        if rate.relativeToPublishRate and rate.limit():
            yield Taken((*path, "relativeToPublishRate"), value=True, origin=f"{origin}: relativeToPublishRate")
    elif rate.subscribeThrottlingRatePerConsumer > 0:
        count, period = rate.subscribeThrottlingRatePerConsumer, max(1, rate.ratePeriodInSecond)
        said = f"subscribeThrottlingRatePerConsumer {count}, ratePeriodInSecond {period}"
        yield Taken(path, f"{count}/{period}s", f"{origin}: {said}")


def _both(of: str, numbers: tuple[int, int], period: int, path: tuple[str, ...], origin: str) -> Iterator[Taken]:
    names = (f"{of}ThrottlingRateInMsg", f"{of}ThrottlingRateInByte")
    return _numbers(path, dict(zip(names, numbers, strict=True)), period, origin)


def take_group(group: ResourceGroup, path: tuple[str, ...], found: Found) -> tuple[bool, bool]:
    """Add what a resource group says; whether it limits what is published, and what is delivered."""
    publish = {"publishRateInMsgs": group.publishRateInMsgs, "publishRateInBytes": group.publishRateInBytes}
    dispatch = {"dispatchRateInMsgs": group.dispatchRateInMsgs, "dispatchRateInBytes": group.dispatchRateInBytes}
    both = [
        list(_numbers((*path, section), {name: number or 0 for name, number in numbers.items()}, 1, "group"))
        for section, numbers in (("publish", publish), ("dispatch", dispatch))
    ]
    found.taken += [*both[0], *both[1]]
    return bool(both[0]), bool(both[1])


def _numbers(path: tuple[str, ...], numbers: dict[str, int], period_s: int, origin: str) -> Iterator[Taken]:
    """Messages, then bytes, each if it limits."""
    of_period = "" if period_s == 1 else f", ratePeriodInSecond {period_s}"
    for key, (name, number) in zip(("messages", "bytes"), numbers.items(), strict=True):
        if number > 0:
            value = number if period_s == 1 else f"{number}/{period_s}s"
            yield Taken((*path, key), value, f"{origin}: {name} {number}{of_period}")
