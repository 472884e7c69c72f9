"""The configuration's `dispatch`: how deliveries are counted and asked for, by Pulsar's own names."""

from pydantic import BaseModel, ConfigDict, Field, model_validator

from limiter.under_way import DispatchRules

_PRECISE = "preciseDispatcherFlowControl"
_BY_ENTRY = "dispatchThrottlingOnBatchMessageEnabled"


class Dispatch(BaseModel):
    """How limits of deliveries work, for all of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    preciseDispatcherFlowControl: bool | None = Field(  # noqa: N815 - Pulsar's name
        None,
        description=f"ask the broker for as many messages as its entries usually hold; default: on, unless {_BY_ENTRY}",
    )
    dispatchThrottlingOnBatchMessageEnabled: bool = Field(  # noqa: N815 - Pulsar's name
        default=False, description="an entry counts as one message, whatever it holds"
    )
    dispatchThrottlingOnNonBacklogConsumerEnabled: bool = Field(  # noqa: N815 - Pulsar's name
        default=True, description="limit also subscriptions that have no backlog"
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> "Dispatch":
        if self.preciseDispatcherFlowControl and self.dispatchThrottlingOnBatchMessageEnabled:
            raise ValueError(
                f"{_PRECISE} and {_BY_ENTRY} exclude each other: one counts the messages of an entry, the other does "
                "not; set one of them to false"
            )
        return self

    def rules(self) -> DispatchRules:
        """The same, as the limiter takes it."""
        precise, by_entry = self.preciseDispatcherFlowControl, self.dispatchThrottlingOnBatchMessageEnabled
        return DispatchRules(
            is_precise=not by_entry if precise is None else precise,
            by_entry=by_entry,
            spares_caught_up=not self.dispatchThrottlingOnNonBacklogConsumerEnabled,
        )
