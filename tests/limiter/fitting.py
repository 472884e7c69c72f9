"""Whether something would fit, without taking anything."""

from limiter.limiter import Limiter


def fits(limiter: Limiter, messages: int, size: int, now: int) -> bool:
    could = limiter.pay(messages, size, now)
    if could:
        limiter.refund(messages, size)
    return could
