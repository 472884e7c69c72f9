"""From Pulsar's rates to a rate section of the configuration."""

from collections.abc import Iterator

from proxy.importing.found import Found, Taken
from proxy.policies.bodies import DispatchRate, PublishRate, ResourceGroup, SubscribeRate


def take_rate(rate: PublishRate | DispatchRate | None, path: tuple[str, ...], origin: str, found: Found) -> bool:
    """Add what a rate says.

    Args:
        rate: None: nothing is set.
        path: Keys of the section that it becomes.
        origin: Where it was set, for people.
        found: Where to.

    Returns:
        Whether it limits anything: numbers of 0 and below are none, as with Pulsar.
    """
    if rate is None:
        return False
    if isinstance(rate, PublishRate):
        of, period, is_relative = "publish", 1, False
        numbers = (rate.publishThrottlingRateInMsg, rate.publishThrottlingRateInByte)
    else:
        of, period, is_relative = "dispatch", max(1, rate.ratePeriodInSecond), rate.relativeToPublishRate
        numbers = (rate.dispatchThrottlingRateInMsg, rate.dispatchThrottlingRateInByte)
    names = (f"{of}ThrottlingRateInMsg", f"{of}ThrottlingRateInByte")
    taken = list(_numbers(path, dict(zip(names, numbers, strict=True)), period, origin))
    if taken and is_relative:
        taken.append(Taken((*path, "relativeToPublishRate"), value=True, origin=f"{origin}: relativeToPublishRate"))
    found.taken += taken
    return bool(taken)


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


def subscribe_rate_told(rate: SubscribeRate | None) -> str | None:
    """A subscribe rate in words, None if it is none."""
    if rate is None or rate.subscribeThrottlingRatePerConsumer <= 0:
        return None
    return f"subscribeRate {rate.subscribeThrottlingRatePerConsumer}/{max(1, rate.ratePeriodInSecond)}s"


def _numbers(path: tuple[str, ...], numbers: dict[str, int], period_s: int, origin: str) -> Iterator[Taken]:
    """Messages, then bytes, each if it limits."""
    of_period = "" if period_s == 1 else f", ratePeriodInSecond {period_s}"
    for key, (name, number) in zip(("messages", "bytes"), numbers.items(), strict=True):
        if number > 0:
            value = number if period_s == 1 else f"{number}/{period_s}s"
            yield Taken((*path, key), value, f"{origin}: {name} {number}{of_period}")
