"""The configuration's `admin_forward`: the broker's own admin, which gets what Sluice does not serve."""

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from proxy.brokers.targets import Address
from proxy.config.values import HostPort, Seconds, Size, Whole

_PORTS = {"http": 80, "https": 443}


def _web_service(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not text.isprintable() or " " in text or text.removesuffix("/") != _root(text):
        raise ValueError("write the broker's web service as http://broker:8080 or https://broker:8443, without a path")
    if "@" in text:
        raise ValueError("the URL holds a user or a password; name a file with a token in admin_forward.token")
    return text.removesuffix("/")


def _root(text: str) -> str:
    parts = urlsplit(text)
    return f"{parts.scheme}://{parts.netloc}"


WebService = Annotated[str, AfterValidator(_web_service)]


class AdminForward(BaseModel):
    """Where requests go that Sluice does not serve, and how much of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: WebService | None = Field(
        None,
        description="the broker's own admin, as `http://broker:8080`: what pulsar-admin asks for and Sluice does not "
        "serve is passed on there, see [Passing the rest on](policies.md#passing-the-rest-on); none: it gets 404",
    )
    token: Path | None = Field(
        None,
        description="file that holds the token which Sluice shows to the broker in place of the caller's; it is read "
        "for each request",
    )
    ca: Path | None = Field(
        None, description="PEM file: who has signed the broker's certificate; none: the system's authorities"
    )
    brokers: tuple[HostPort, ...] = Field(
        (),
        description="admin addresses of further brokers, to which a broker may send requests on: host:port, * in the "
        "host allowed; those of allowed_brokers' hosts at the port of the url are allowed without",
    )
    timeout: Seconds = Field(
        30.0,
        gt=0,
        le=3600,
        description="for connecting, until the broker's answer begins, and the longest pause in it",
    )
    max_body: Size = Field(
        128 * 1024**2, gt=0, description="bytes that the body of a request may have (functions are uploaded in one)"
    )
    max_in_flight: Whole = Field(16, gt=0, description="requests at the broker at once; more get 503")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given = [key for key in ("token", "ca", "brokers") if getattr(self, key)]
        if self.url is None and given:
            raise ValueError(f"{given[0]} is of no use without url: name the broker's admin there, too")
        if self.ca is not None and not self.has_tls:
            raise ValueError("ca is of no use with http: write url with https")
        return self

    @property
    def has_tls(self) -> bool:
        """Whether the broker is asked over TLS."""
        return self.url is not None and self.url.startswith("https:")

    @property
    def address(self) -> Address:
        """Host and port of the url, which must be given."""
        parts = urlsplit(self.url or "")
        assert parts.hostname
        return parts.hostname, parts.port or _PORTS[parts.scheme]
