"""Steps at random, by a seed; and what is left of those that broke something when all that may go has gone.

Not a machine of hypothesis: there a rule with three numbers takes 0.1 ms before it does anything, and a command here is
made of ten; a whole step takes 0.08 ms. A row of steps is shortened by leaving out what it breaks without.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.proxy.session.ids.adversary import Said, Words, said, some_words
from tests.proxy.session.ids.duel import Duel, Step
from tests.proxy.session.ids.rules import Broken

STEPS = 200
"""Of one duel."""


def steps_of(seed: int, count: int = STEPS) -> list[Step]:
    """The steps that a seed stands for: in each duel some things happen often, and others never."""
    random = Random(seed)
    words = some_words(random)
    weights = [
        weight * random.choice((1, 1, 3) if action in _ALWAYS else (0, 1, 1, 3)) for action, weight in _WEIGHTS.items()
    ]
    return [_step(random, words, action) for action in random.choices(list(_WEIGHTS), weights, k=count)]


def _step(random: Random, words: Words, action: str) -> Step:
    return Step(action, _client(random, words) if action == "client_says" else _ARGS[action](random))


def _client(random: Random, words: Words) -> tuple[tuple[Said, ...], float]:
    count = random.choice((1, 1, 1, 2, 2, 3, 4))
    share = random.random() if random.random() < 0.1 else 1.0
    return tuple(said(random, words=words) for _ in range(count)), share


_ARGS: dict[str, Callable[[Random], tuple[object, ...]]] = {
    "broker_reads": lambda random: (random.choice((1, 2, 100)),),
    "broker_does": lambda random: (random.randrange(8), random.choice((0, 0, 0, 0, 1, 2, 3))),
    "broker_writes": lambda random: (random.choice((1, 2, 100)), random.choice((0, 0, 0, 0, 0, 0, 3, 20))),
    "broker_closes": lambda random: (random.randrange(8),),
    "broker_delivers": lambda random: (random.randrange(8), random.choice((1, 1, 3))),
    "broker_authorizes": lambda random: (random.random() < 0.3,),
    "operator_blocks": lambda random: (random.randrange(8),),
    "operator_unblocks": lambda _random: (),
    "operator_limits": lambda random: (random.choice((1, 5, 1000)),),
    "time_passes": lambda random: (random.choice((0.05, 0.3, 2.0)),),
    "all_settles": lambda _random: (),
}
_WEIGHTS = {
    "client_says": 34,
    "broker_reads": 18,
    "broker_does": 12,
    "broker_writes": 18,
    "broker_closes": 2,
    "broker_delivers": 12,
    "broker_authorizes": 1,
    "operator_blocks": 2,
    "operator_unblocks": 2,
    "operator_limits": 1,
    "time_passes": 3,
    "all_settles": 12,
}
_ALWAYS = {"client_says", "broker_reads", "broker_does", "broker_writes"}


def run(steps: list[Step]) -> Broken | None:
    """What breaks; None if nothing does."""
    duel = Duel()
    try:
        for step in steps:
            duel.do(step)
        duel.settle_and_compare()
        duel.close()
    except Broken as broken:
        return broken
    except AssertionError as error:
        return Broken("the end", str(error))
    except Exception as error:  # noqa: BLE001 - the product's, in the middle of a step
        return Broken("exception", repr(error))
    finally:
        if not duel.world.loop.is_closed():
            duel.world.loop.close()
    return None


def shrunk(steps: list[Step]) -> list[Step]:
    """As few of these steps as still break the same rule."""
    broken = run(steps)
    assert broken is not None, "nothing breaks"

    def breaks(fewer: list[Step]) -> bool:
        breach = run(fewer)
        return breach is not None and breach.rule == broken.rule

    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if breaks(fewer):
                steps = fewer
            else:
                at += size
        size //= 2
    return _plainer(steps, breaks)


def _plainer(steps: list[Step], breaks: Callable[[list[Step]], bool]) -> list[Step]:
    """The same with fewer commands in them, in their usual form."""
    for at, step in enumerate(steps):
        if step.what != "client_says":
            continue
        commands, share = step.args
        for command in commands:
            for instead in ((), (replace(command, twist="", decoy=()),), (replace(command, payload=0),)):
                said_now = steps[at].args[0]
                if command not in said_now:
                    break
                place = said_now.index(command)
                fewer = said_now[:place] + instead + said_now[place + 1 :]
                changed = [*steps[:at], Step("client_says", (fewer, share)), *steps[at + 1 :]]
                if fewer != said_now and breaks(changed):
                    steps = changed
    return steps


def told(steps: list[Step]) -> str:
    """A trace for people."""
    lines = [f"  {number}. {step}" for number, step in enumerate(steps, start=1)]
    return "\n".join([*lines, f"  => {run(steps)}"])
