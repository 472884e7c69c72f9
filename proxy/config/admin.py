"""The configuration's `admin_access`: who may use the admin address, and how much of it."""

import ipaddress
import socket
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from limiter.rates import NANOS_PER_SECOND
from proxy.brokers.targets import split_address
from proxy.config.values import CountPerPeriod, HostName, Name, Seconds, Size, Whole


class AdminTls(BaseModel):
    """TLS of the admin address."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    certificate: Path = Field(description="PEM file: the certificate that callers see, and those that lead to its root")
    key: Path = Field(description="PEM file: its private key, without a password")
    client_ca: Path | None = Field(
        None, description="PEM file: who signs the certificates that callers must have; none: callers need none"
    )
    read_only: tuple[Name, ...] = Field(
        (),
        description="common names of callers' certificates that may only read; all others may write, unless write is"
        " given",
    )
    write: tuple[Name, ...] | None = Field(
        None, description="common names of callers' certificates that may write; all others may only read"
    )

    @model_validator(mode="after")
    def _one_access_each(self) -> "AdminTls":
        if both := sorted({*self.read_only} & {*(self.write or ())}):
            raise ValueError(f"{both[0]!r} is in read_only and in write: who may write needs to be in write only")
        if self.write is not None and self.client_ca is None:
            raise ValueError("write needs client_ca: without it callers show no certificate")
        return self


class AdminAccess(BaseModel):
    """What stands between the network and the admin REST."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: Path | None = Field(
        None,
        description="YAML file of who may call, see [Doors](operating.md#doors); none: no token is needed, which only "
        "loopback and tls.client_ca allow",
    )
    tls: AdminTls | None = None
    hosts: tuple[HostName, ...] = Field(
        (),
        description="further names by which callers reach an address without tokens and TLS; IP addresses, localhost "
        "and the name in admin are always allowed, see [Doors](operating.md#doors)",
    )
    max_body: Size = Field(64 * 1024, gt=0, le=16 * 1024**2, description="bytes that the body of a request may have")
    max_policies_body: Size = Field(
        16 * 1024**2,
        gt=0,
        le=64 * 1024**2,
        description="the same of a whole policy set (`sluice apply`), of which one at a time is taken; 16 MiB are some "
        "150,000 topics",
    )
    request_timeout: Seconds = Field(
        30.0,
        gt=0,
        le=3600,
        description="until a request must be there, body and all; and until its answer must be taken",
    )
    rate: CountPerPeriod = Field(
        (200, NANOS_PER_SECOND), description="requests of one caller's address (IPv6: of its /64)"
    )
    burst: Whole = Field(400, gt=0, description="how many of them at once")
    max_connections: Whole = Field(256, gt=0, description="connections at once")


def open_to_all(admin: str, access: AdminAccess) -> str | None:
    """What is wrong if anybody on the network could use the admin address, or None."""
    host = split_address(admin)[0]
    has_lock = access.tokens is not None or (access.tls is not None and access.tls.client_ca is not None)
    if has_lock or is_loopback(host):
        return None
    return (
        f"admin: {admin!r}: anybody who reaches this address could change limits; set admin_access.tokens or "
        "admin_access.tls.client_ca, or listen on 127.0.0.1 (metrics may have an address of their own: metrics)"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`, an address or a name."""
    try:
        found = [address[0] for *_, address in socket.getaddrinfo(host, None)]
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(each).partition("%")[0]).is_loopback for each in found)
