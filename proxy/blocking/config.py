"""The configuration's `blocks`: what is blocked from the start."""

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core.core_schema import ValidationInfo

from proxy.blocking.rules import MOST_RULES, Key, Kind, Rule, read_key, read_reason

_KINDS = tuple(kind.value for kind in Kind if kind is not Kind.TOPIC)


class Block(BaseModel):
    """One entry of the list: whom it means, and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str | None = Field(None, description="client address or range: 192.0.2.7, 2001:db8::/32")
    role: str | None = Field(None, description="what clients authenticate as")
    producer: str | None = Field(None, description="producer name")
    consumer: str | None = Field(None, description="consumer name")
    subscription: str | None = Field(None, description="subscription name")
    topic: str | None = Field(
        None, description="alone: a whole topic or one partition; else: where the name is blocked"
    )
    namespace: str | None = Field(None, description="where the name is blocked: tenant/namespace")
    reason: str = Field("", description="for people; clients get it in their error")

    @field_validator(*_KINDS, "topic")
    @classmethod
    def _readable(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            read_key(str(info.field_name), value)
        return value

    @field_validator("reason")
    @classmethod
    def _one_line(cls, value: str) -> str:
        return read_reason(value)

    @model_validator(mode="after")
    def _means_one(self) -> "Block":
        self.key()
        return self

    def key(self) -> Key:
        """Whom it means.

        Raises:
            ValueError: If it names nobody, or several.
        """
        named = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(named) > 1 or not (named or self.topic):
            raise ValueError(f"write one of {', '.join(_KINDS)}, topic")
        if not named:
            return read_key(Kind.TOPIC, self.topic or "", namespace=self.namespace or "")
        return read_key(named[0], getattr(self, named[0]), self.topic or "", self.namespace or "")

    def rule(self) -> Rule:
        """The same, as the blocklist takes it."""
        return Rule(self.key(), self.reason, origin="file")


def each_once(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The whole list, if nothing stands in it twice.

    Raises:
        ValueError: If something does, or if there are too many.
    """
    if len(blocks) > MOST_RULES:
        raise ValueError(f"{len(blocks)} entries; {MOST_RULES} are the most that can be")
    seen: set[Key] = set()
    for block in blocks:
        if block.key() in seen:
            raise ValueError(f"{block.key()} stands here twice; leave one out")
        seen.add(block.key())
    return blocks
