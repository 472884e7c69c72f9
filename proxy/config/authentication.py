"""Section `authentication` of the configuration: who proves what a client's role is, and what Sluice shows brokers."""

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import unquote

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

_LONGEST_SOURCE = 64 * 1024


def _key_source(source: str) -> str:
    """Say nothing of the text in errors: `data:` holds a secret."""
    if not source or len(source) > _LONGEST_SOURCE or not source.isprintable():
        raise ValueError("name a file, or write file:/PATH or data:;base64,KEY as Pulsar takes it")
    return source


KeySource = Annotated[str, AfterValidator(_key_source)]
"""A path, or a URL with `file:` or `data:`."""


def path_in(source: str) -> Path | None:
    """Return the path that a source names; None for `data:`."""
    if source.startswith("data:"):
        return None
    if source.startswith("file:"):
        return Path(unquote(source.removeprefix("file:").removeprefix("//"), errors="surrogateescape"))
    return Path(source)


_CLAIM = r"[!-~]{1,100}"


class TokenAuthentication(BaseModel):
    """Clients' tokens (auth method `token`): JSON Web Tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    secret_key: KeySource | None = Field(
        None,
        description="file with the secret that signs tokens (tokenSecretKey), for HS256, HS384 and HS512: as it is or "
        "in base64; or `data:;base64,…`, as Pulsar takes it",
    )
    public_key: KeySource | None = Field(
        None,
        description="file with the public key that verifies tokens (tokenPublicKey), PEM or DER: RSA for RS256 to "
        "RS512, EC for ES256 to ES512",
    )
    jwks: KeySource | None = Field(None, description="file with several such keys: a JSON Web Key Set")
    token_claim: str = Field("sub", pattern=_CLAIM, description="the claim that names the role (tokenAuthClaim)")
    audience: str | None = Field(
        None, min_length=1, description="what the claim aud must name (tokenAudience); none: anything"
    )

    @model_validator(mode="after")
    def _has_keys(self) -> Self:
        if self.secret_key is None and self.public_key is None and self.jwks is None:
            raise ValueError("no key is given that verifies tokens: give secret_key, public_key or jwks")
        return self


class BasicAuthentication(BaseModel):
    """Clients' users and passwords (auth method `basic`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    htpasswd: Path = Field(description="file of users as Apache's htpasswd writes it: bcrypt, apr1 or SHA")


class BrokerCredentials(BaseModel):
    """The credentials that Sluice shows brokers, as one of their `proxyRoles`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    token_file: Path | None = Field(
        None,
        description="file with the token that Sluice shows brokers; none: its certificate, if it has one (broker_tls)",
    )


class Authentication(BaseModel):
    """The authentication of clients: the broker proves a client's role, or Sluice does."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["terminate", "passthrough"] | None = Field(
        None,
        description="passthrough: what clients show goes on, and the broker decides; terminate: Sluice verifies it and "
        "shows brokers its own, see [Authentication](authentication.md); default: passthrough",
    )
    token: TokenAuthentication | None = None
    basic: BasicAuthentication | None = None
    tls: bool = Field(
        default=False,
        description="the common name (CN) of a client's verified certificate is its role (auth method tls)",
    )
    broker: BrokerCredentials = BrokerCredentials()
    forward_credentials: bool = Field(
        default=False,
        description="brokers get what the client showed, too (original_auth_data), to verify it anew "
        "(authenticateOriginalAuthData); for tokens and passwords",
    )

    @model_validator(mode="after")
    def _fits_its_mode(self) -> Self:
        given = [key for key in ("token", "basic", "tls", "forward_credentials") if getattr(self, key)]
        given += ["broker"] if self.broker != BrokerCredentials() else []
        if not self.is_terminated and given:
            raise ValueError(f"{given[0]} is of no use in mode passthrough: write mode: terminate, or leave it out")
        if self.is_terminated and not {"token", "basic", "tls"} & {*given}:
            raise ValueError("mode: terminate needs what clients may show: give token, basic or tls")
        return self

    def files(self) -> list[Path]:
        """Return the files that the section names, whose changes count."""
        token, broker = self.token, self.broker
        sources = [token.secret_key, token.public_key, token.jwks] if token else []
        named = [path_in(source) for source in sources if source is not None]
        named += [self.basic.htpasswd if self.basic else None, broker.token_file]
        return [path for path in named if path is not None]

    @property
    def is_terminated(self) -> bool:
        """True if Sluice verifies clients."""
        return self.mode == "terminate"
