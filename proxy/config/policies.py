"""The configuration's `policies`: where limits and blocks that are set at run time are kept."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from proxy.config.values import Whole


class PolicyStore(BaseModel):
    """What outlives the process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: Path | None = Field(
        None,
        description="SQLite file, made if needed, of this proxy alone; none: what is set by REST ends with the process",
    )
    audit_changes: Whole = Field(
        100_000, gt=0, description="changes that are remembered with who made them, what was before and after"
    )
