"""The configuration's `access_log`: where and how it is written."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from proxy.config.values import Seconds, Size

_LEAST_FILES = 4
"""So that a file is never deleted as soon as it is closed."""


class AccessLog(BaseModel):
    """Where and how the access log is written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dir: Path | None = Field(None, description="folder for closed log files; none: no access log")
    interval: Seconds = Field(1.0, ge=0.1, le=60, description="time between the lines of an active stream")
    rotate_size: Size = Field(64 * 1024**2, gt=0, description="bytes after which a file is closed")
    rotate_age: Seconds = Field(10.0, gt=0, description="time after which a file is closed")
    queue: Size = Field(
        32 * 1024**2, gt=0, description="bytes that may wait for the disk; more are dropped, counted and declared"
    )
    fsync: Literal["never", "close", "batch"] = Field(
        "close",
        description="when a file is forced onto the disk, to outlive a power cut: when it is closed, after each write "
        "(a few a second), or never",
    )
    retain_age: Seconds | None = Field(
        None, ge=60, description="time after which this proxy's closed files are deleted, read or not; none: never"
    )
    retain_size: Size | None = Field(
        None,
        description="bytes that this proxy's closed files may have in all, the oldest deleted first, read or not; at "
        f"least {_LEAST_FILES} times rotate_size; none: any number",
    )
    address_key: Path | None = Field(
        None,
        description="file with a key of 16 bytes or more: a keyed hash stands for each client's address, see "
        "[Addresses](operating.md#addresses); none: addresses as they are",
    )

    @model_validator(mode="after")
    def _keeps_some_files(self) -> "AccessLog":
        least = _LEAST_FILES * self.rotate_size
        if self.retain_size is not None and self.retain_size < least:
            raise ValueError(
                f"retain_size: {self.retain_size} bytes are less than {_LEAST_FILES} files of rotate_size "
                f"({self.rotate_size}), so that files would be gone before anybody can read them; set at least {least}"
            )
        return self
