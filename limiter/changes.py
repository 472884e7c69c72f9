"""A change of the policies: what it is about, and whose limits it can concern."""

from dataclasses import dataclass

from limiter.levels import LEVELS, About, Level, Setting
from limiter.limiter import Scope
from limiter.policies import Value

LEVEL_OF_SETTING: dict[Setting, Level] = {setting: level for level in LEVELS for setting, _, _ in level.settings}
LEVEL_OF_WORD: dict[str, Level] = {level.word: level for level in LEVELS}
OF_NAMESPACE = frozenset({Setting.NAMESPACE, Setting.TOPIC_OF_NAMESPACE, Setting.SUBSCRIPTION_OF_NAMESPACE})
OF_TOPIC = frozenset({Setting.PARTITIONED_TOPIC, Setting.TOPIC, Setting.SUBSCRIPTION_OF_TOPIC, Setting.SUBSCRIPTION})


@dataclass(frozen=True, slots=True)
class Change:
    """One value that is another one now.

    Args:
        about: What the value is about.
        setting: What it is set for.
        name: Whose it is.
        only_tunes: Whether it limited before, still does, and in the same way: holding, or only observing. Then no
            limit appears or goes by it, as whoever it holds for was limited by it before, or by something narrower.
    """

    about: About
    setting: Setting
    name: str
    only_tunes: bool = False

    def may_tune(self, scope: Scope) -> bool:
        """Whether a limiter's value can come from here; its name is looked at as far as that is cheap."""
        if scope.level != LEVEL_OF_SETTING[self.setting].word or scope.direction != self.about:
            return False
        if self.setting in OF_NAMESPACE:
            return f"{scope.tenant}/{scope.namespace}" == self.name
        return True

    def topics(self) -> list[str]:
        """Names one of which is the topic's, if it is set for one; both names around an @ may hold another."""
        if self.setting is not Setting.SUBSCRIPTION:
            return [self.name] if self.setting in OF_TOPIC else []
        return [self.name[at + 1 :] for at, letter in enumerate(self.name) if letter == "@"]


def change_of(place: tuple[About, Setting, str], before: Value | None, after: Value | None) -> Change | None:
    """What is another than before in one place, if anything is."""
    if before == after:
        return None
    if not before or not after or not before.limit or not after.limit:
        return Change(*place)
    return Change(*place, only_tunes=(before.limit.mode == "observe") == (after.limit.mode == "observe"))
