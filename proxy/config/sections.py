"""Sections of the configuration: access_log, admin_access, admission, authentication, dispatch, and others."""

import ipaddress
import socket
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import unquote

from pydantic import AfterValidator, Field, PrivateAttr, create_model, field_validator, model_validator

from accesslog.file_names import SUFFIXES, Compression
from limiter.levels import SHAREABLE
from limiter.permits import DispatchRules
from limiter.token_bucket import NANOS_PER_SECOND
from protocol.endpoint import Endpoint
from protocol.topic_name import parse_topic
from proxy.config.values import (
    CollectorUrl,
    CountPerPeriod,
    Flag,
    HostName,
    Name,
    NamespaceName,
    Network,
    ProxyId,
    Seconds,
    Size,
    WebServiceAddress,
    WebServiceUrl,
    Whole,
)
from proxy.mistakes import ConfigSection

_LEAST_FILES = 4
"""Log files that are kept, at least: so no file is deleted as soon as it is closed."""


class AccessLogSettings(ConfigSection):
    """The access log: its folder, its intervals and its files."""

    dir: Path | None = Field(None, description="folder for closed log files; none: no access log")
    interval: Seconds = Field(1.0, ge=0.1, le=60, description="time between the lines of an active stream")
    steady_interval: Seconds = Field(
        10.0,
        ge=0,
        le=60,
        description="time between the lines of a stream or limit while nothing is held and no limit is reached; "
        "not above `interval`: each interval has its line",
    )
    compression: Compression = Field(
        "zstd",
        description=f"form of the files: `zstd` (`{SUFFIXES['zstd']}`, a thirtieth of the size), or `none` "
        f"(`{SUFFIXES['none']}`)",
    )
    rotate_size: Size = Field(
        64 * 1024**2, gt=0, description="bytes of lines, before compression, after which a file is closed"
    )
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
        f"least {_LEAST_FILES} times rotate_size; `none`: any number; default: half of the disk that `dir` is on",
    )
    address_key: Path | None = Field(
        None,
        description="file with a key of 16 bytes or more: a keyed hash stands for each client's address, see "
        "[Addresses](operating.md#addresses); none: addresses as they are",
    )

    @field_validator("retain_size", mode="before")
    @classmethod
    def _may_be_none(cls, value: object) -> object:
        return None if value == "none" else value

    _sharers: int = PrivateAttr(1)
    """Processes whose files have `retain_size` in all."""

    def part_of(self, processes: int) -> "AccessLogSettings":
        """Return the settings of one of several processes, which log into one folder."""
        part = self.model_copy()
        part._sharers = processes  # noqa: SLF001 - of this class
        return part

    def kept_size(self, disk: int) -> int | None:
        """Return the bytes that closed files may have in all on a disk of this size; None: any number."""
        whole = self.retain_size if "retain_size" in self.model_fields_set else disk // 2
        return whole and max(whole // self._sharers, _LEAST_FILES * self.rotate_size)

    @model_validator(mode="after")
    def _keeps_some_files(self) -> "AccessLogSettings":
        least = _LEAST_FILES * self.rotate_size
        if self.retain_size is not None and self.retain_size < least:
            raise ValueError(
                f"retain_size: {self.retain_size} bytes are less than {_LEAST_FILES} files of rotate_size "
                f"({self.rotate_size}), so that files would be gone before they can be read; set at least {least}"
            )
        return self


class Drain(ConfigSection):
    """The orderly end of a run, and the state that it leaves for the next one."""

    delay: Seconds = Field(
        5.0,
        ge=0,
        description="time from SIGTERM, or `sluice drain`, in which `/readyz` is 503 and clients are served as before: "
        "until balancers have noticed",
    )
    period: Seconds = Field(
        20.0, ge=0, description="time over which connections are moved then; fewer than 1,000 streams take less"
    )
    timeout: Seconds = Field(
        30.0,
        ge=0,
        description="time from the begin after which connections that are left end, delay and period included; 0: all "
        "end at once",
    )
    state: Path | None = Field(
        None,
        description="folder in which a run leaves the balances of its limits for the next run of the same proxy_id, "
        "see [Limits over a restart](operating.md#limits-over-a-restart); none: each start fills all buckets",
    )

    @model_validator(mode="after")
    def _has_time(self) -> "Drain":
        if self.timeout and self.delay + self.period > self.timeout:
            raise ValueError(
                f"delay and period, {self.delay + self.period:g} s together, do not fit timeout, {self.timeout:g} s: "
                "raise timeout, or lower one of the two"
            )
        return self


class ListenerTls(ConfigSection):
    """TLS with clients, on the addresses of `listen` that are `pulsar+ssl://`."""

    certificate: Path = Field(description="PEM file: the certificate that clients see, and those that lead to its root")
    key: Path = Field(description="PEM file: its private key, without a password")
    client_ca: Path | None = Field(None, description="PEM file: the authorities that sign clients' certificates")
    client_auth: Literal["none", "optional", "required"] | None = Field(
        None,
        description="whether clients show a certificate, which client_ca must have signed; default: required where "
        "client_ca is given, else none",
    )
    min_version: Literal["TLSv1.2", "TLSv1.3"] = Field("TLSv1.2", description="the oldest version that is spoken")
    ciphers: str | None = Field(
        None,
        min_length=1,
        max_length=2000,
        description="ciphers of TLS 1.2, in OpenSSL's names with colons between them; those of TLS 1.3 are fixed; "
        "none: Python's choice",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        asks = self.client_auth not in {None, "none"}
        if self.client_ca is None and asks:
            raise ValueError(
                f"client_auth: {self.client_auth} needs client_ca: the authorities that sign clients' certificates"
            )
        if self.client_ca is not None and self.client_auth == "none":
            raise ValueError("client_ca is of no use with client_auth: none; set that to optional or required")
        return self

    @property
    def asks_clients(self) -> Literal["none", "optional", "required"]:
        """True if clients must show a certificate: by `client_auth`, or where that is not set, by `client_ca`."""
        return self.client_auth or ("none" if self.client_ca is None else "required")


class BrokerTls(ConfigSection):
    """TLS with brokers, where `broker` is `pulsar+ssl://`."""

    ca: Path | None = Field(
        None, description="PEM file: the authorities that sign brokers' certificates; none: the system's authorities"
    )
    certificate: Path | None = Field(
        None, description="PEM file: the certificate that Sluice shows to brokers, and those that lead to its root"
    )
    key: Path | None = Field(None, description="PEM file: its private key, without a password")
    verify_hostname: Flag = Field(
        default=True, description="the certificate must be for the broker's name, as `broker` and lookups write it"
    )
    server_name: HostName | None = Field(
        None, description="the name that is asked for (SNI) and must be in the certificate, in place of each broker's"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key need each other: name both files, or none")
        return self


class AdminTls(ConfigSection):
    """TLS of the admin address."""

    certificate: Path = Field(description="PEM file: the certificate that callers see, and those that lead to its root")
    key: Path = Field(description="PEM file: its private key, without a password")
    client_ca: Path | None = Field(
        None,
        description="PEM file: the authorities that sign the certificates that callers must have; none: callers need "
        "none",
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
            raise ValueError(f"{both[0]!r} is in read_only and in write: for write access name it in write only")
        if self.write is not None and self.client_ca is None:
            raise ValueError("write needs client_ca: without it callers show no certificate")
        return self


DegradedCause = Literal[
    "broker_unreachable",
    "fleet_not_formed",
    "fleet_cut_off",
    "fleet_limits_differ",
    "fleet_names_taken_twice",
    "fleet_clock",
    "fleet_messages_lost",
    "policies_cut_off",
    "policies_not_in_force",
    "policies_full",
    "policies_not_stored",
    "reload_refused",
    "access_log_losing",
    "access_log_not_deleted",
]
"""States in which a proxy serves, and not all that is configured holds: see `proxy.degraded`."""


class AdminAccess(ConfigSection):
    """The locks and bounds of the admin REST."""

    tokens: Path | None = Field(
        None,
        description="YAML file with the tokens of callers, see [Authentication](operating.md#authentication); none: no "
        "token is needed, which only loopback and tls.client_ca allow",
    )
    tls: AdminTls | None = None
    hosts: tuple[HostName, ...] = Field(
        (),
        description="further names by which callers reach an address without tokens and TLS; IP addresses, localhost "
        "and the name in admin are always allowed, see [Authentication](operating.md#authentication)",
    )
    max_body: Size = Field(64 * 1024, gt=0, le=16 * 1024**2, description="bytes that the body of a request may have")
    max_policies_body: Size = Field(
        16 * 1024**2,
        gt=0,
        le=32 * 1024**2,
        description="the same for a whole policy set (`sluice apply`), one at a time; 16 MiB hold some 150,000 topics",
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
    burst: Whole = Field(400, gt=0, description="requests of one caller's address at once")
    max_connections: Whole = Field(256, gt=0, description="connections at once")
    not_ready_when: tuple[DegradedCause, ...] = Field(
        (),
        description="degraded states in which `/readyz` answers 503, see [Degraded](operating.md#degraded); none: the "
        "proxy is ready in all of these states",
    )


def open_to_all(admin: Endpoint, access: AdminAccess) -> str | None:
    """Return the problem of an admin address that any host on the network could use; None if there is none."""
    has_lock = access.tokens is not None or (access.tls is not None and access.tls.client_ca is not None)
    if has_lock or is_loopback(admin.host):
        return None
    return (
        f"admin: {admin.address!r}: any host that reaches this address could change limits; set admin_access.tokens or "
        "admin_access.tls.client_ca, or listen on 127.0.0.1 (metrics may have an address of their own: metrics)"
    )


def is_loopback(host: str) -> bool:
    """Say whether `host`, an address or a name, is reached from this machine only."""
    try:
        addresses = [address[0] for *_, address in socket.getaddrinfo(host, None)]
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(each).partition("%")[0]).is_loopback for each in addresses)


class AdminForward(ConfigSection):
    """The broker that gets admin requests which Sluice does not serve, and the bounds of forwarding."""

    url: WebServiceUrl | None = Field(
        None,
        description="the broker's own admin, as `http://broker:8080`: it gets pulsar-admin's requests that Sluice does "
        "not serve, see [Passing the rest on](policies.md#passing-the-rest-on); none: they get 404",
    )
    token: Path | None = Field(
        None,
        description="file that holds the token which Sluice shows to the broker in place of the caller's; it is read "
        "for each request",
    )
    caller: Literal["principal", "authorization"] | None = Field(
        None,
        description="how brokers know the caller; principal: by the name of its token or certificate, as "
        "X-Original-Principal, which they believe from one of their proxyRoles; authorization: by the caller's own "
        "Authorization, in place of a token of Sluice's",
    )
    ca: Path | None = Field(
        None, description="PEM file: the authorities that sign the broker's certificate; none: the system's authorities"
    )
    brokers: tuple[WebServiceAddress, ...] = Field(
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
    max_in_flight: Whole = Field(
        16,
        gt=0,
        description="requests at the broker at once: half for one caller, half for all tokens of tenants together; "
        "more get 503",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given = [key for key in ("token", "caller", "ca", "brokers") if getattr(self, key)]
        if self.url is None and given:
            raise ValueError(f"{given[0]} is of no use without url: name the broker's admin in url")
        if self.caller == "principal" and self.token is None:
            raise ValueError("caller: principal needs token: brokers believe it from one of their proxyRoles only")
        if self.caller == "authorization" and self.token is not None:
            raise ValueError("caller: authorization excludes token: a request has one Authorization; leave one out")
        if self.ca is not None and not self.has_tls:
            raise ValueError("ca is of no use with http: write url with https")
        return self

    @property
    def has_tls(self) -> bool:
        """True if the broker is asked over TLS."""
        return self.url is not None and self.url.scheme == "https"


_OFF = "0: any number"


LogLevel = Literal["info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]


class OperatorLog(ConfigSection):
    """The operator's log, on standard error."""

    level: LogLevel = Field("info", description="the least level of its lines, see [log.md](log.md)")
    format: LogFormat = Field("auto", description="auto: columns on a terminal, else JSON; `console`: columns anywhere")


class Otlp(ConfigSection):
    """The OpenTelemetry collector that gets the metrics, too."""

    url: CollectorUrl | None = Field(
        None,
        description="the collector's address for OTLP over HTTP: it gets the metrics of /metrics at its /v1/metrics, "
        "see [OpenTelemetry](metrics.md#opentelemetry); none: they are not sent",
    )
    interval: Seconds = Field(60.0, ge=1, le=3600, description="between two exports")
    timeout: Seconds = Field(10.0, gt=0, le=3600, description="for one request to the collector")
    token: Path | None = Field(
        None, description="file that holds the token which Sluice shows to the collector; it is read for each export"
    )
    ca: Path | None = Field(
        None,
        description="PEM file: the authorities that sign the collector's certificate; none: the system's authorities",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given = [key for key in ("token", "ca") if getattr(self, key)]
        if self.url is None and given:
            raise ValueError(f"{given[0]} is of no use without url: name the collector in url")
        if self.ca is not None and self.url is not None and self.url.scheme != "https":
            raise ValueError("ca is of no use with http: write url as https://HOST:PORT")
        return self


class AdmissionBounds(ConfigSection):
    """Bounds of connections, lookups and streams; a request beyond a bound is refused.

    Each key is one of `proxy.admission_control.BoundName`.
    """

    connection_rate: CountPerPeriod | None = Field(None, description="new client connections, as 200/s or 50/10s")
    connection_rate_per_address: CountPerPeriod | None = Field(
        None, description="new connections of one client address (IPv6: of its /64)"
    )
    max_connections_per_address: Whole = Field(
        0,
        ge=0,
        description="connections of one client address (IPv6: of its /64) at once "
        f"(maxConcurrentInboundConnectionsPerIp, brokerMaxConnectionsPerIp); {_OFF}",
    )
    lookup_rate_per_address: CountPerPeriod | None = Field(
        None, description="lookups, other questions about topics and schemas, and new schemas, of one client address"
    )
    subscribe_rate_per_consumer: CountPerPeriod | None = Field(
        None,
        description="how often one consumer may subscribe to one topic, as 5/30s, where neither the topic nor its "
        "namespace has a value (subscribeThrottlingRatePerConsumer per subscribeRatePeriodPerConsumerInSecond)",
    )
    max_producers_per_topic: Whole = Field(
        0, ge=0, description=f"producers of one topic or partition at once (maxProducersPerTopic); {_OFF}"
    )
    max_consumers_per_topic: Whole = Field(
        0, ge=0, description=f"consumers of one topic or partition at once (maxConsumersPerTopic); {_OFF}"
    )
    max_consumers_per_subscription: Whole = Field(
        0,
        ge=0,
        description=f"consumers of one subscription of one topic or partition at once (maxConsumersPerSubscription); "
        f"{_OFF}",
    )


class _ProxyProtocolMode(ConfigSection):
    mode: Literal["off", "optional", "required"] = Field(
        "off",
        description="required: each connection begins with a header, of version 1 or 2; optional: it may, which only a "
        "balancer that always sends one makes safe; off: none may",
    )


_NETWORKS = "from"
"""A word of Python's, which a class body cannot have as a field."""


class ProxyProtocol(
    create_model(  # type: ignore[misc] # a class that is made here
        "_ProxyProtocolKeys",
        __base__=_ProxyProtocolMode,
        **{
            _NETWORKS: (
                tuple[Network, ...],
                Field((), description="networks of balancers: a header is believed from these, and refused elsewhere"),
            )
        },
    )
):
    """Headers of the PROXY protocol that say where clients are, see [PROXY protocol](proxy-protocol.md)."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.mode != "off" and not self.networks:
            raise ValueError(
                f"mode {self.mode} needs from: name the networks of the balancers whose headers are believed, as "
                "from: [10.0.0.0/8]"
            )
        return self

    @property
    def networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks whose headers are believed: the key `from`."""
        networks: tuple[IPv4Network | IPv6Network, ...] = getattr(self, _NETWORKS)
        return networks


_PRECISE = "preciseDispatcherFlowControl"
_BY_ENTRY = "dispatchThrottlingOnBatchMessageEnabled"


class Dispatch(ConfigSection):
    """Rules for all limits of deliveries."""

    preciseDispatcherFlowControl: Flag | None = Field(  # noqa: N815 - Pulsar's name
        None,
        description=f"ask the broker for as many messages as its entries usually hold; default: on, unless {_BY_ENTRY}",
    )
    dispatchThrottlingOnBatchMessageEnabled: Flag = Field(  # noqa: N815 - Pulsar's name
        default=False, description="an entry counts as one message, whatever it holds"
    )
    dispatchThrottlingOnNonBacklogConsumerEnabled: Flag = Field(  # noqa: N815 - Pulsar's name
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
        """Return the rules of this section, as the limiter takes them."""
        precise, by_entry = self.preciseDispatcherFlowControl, self.dispatchThrottlingOnBatchMessageEnabled
        return DispatchRules(
            is_precise=not by_entry if precise is None else precise,
            by_entry=by_entry,
            spares_caught_up=not self.dispatchThrottlingOnNonBacklogConsumerEnabled,
        )


class PolicyStore(ConfigSection):
    """The store of policies, which outlives the process."""

    store: Path | None = Field(
        None,
        description="SQLite file, made if needed, of this proxy alone; none: policies set by REST end with the process",
    )
    audit_changes: Whole = Field(
        100_000, gt=0, description="changes in the audit log, each with its author and the policy before and after"
    )
    tenant_policies: Whole = Field(
        1000, gt=0, description="policies that tokens for some tenants may set for each of these tenants"
    )
    tenant_bytes: Size = Field(
        1024**2, gt=0, description="bytes of such policies of one tenant: their names and bodies, and 300 for each"
    )
    topic: str | None = Field(
        None,
        description="persistent topic by which a change in one proxy holds in all that name it; they reach it through "
        "`broker`; `none`: each keeps its own; default: NAME-policies in `fleet.namespace` where a fleet is by topics",
    )

    @field_validator("topic")
    @classmethod
    def _is_persistent(cls, value: str | None) -> str | None:
        if value is None or value == "none":
            return value
        topic = parse_topic(value)
        if topic.domain != "persistent" or topic.partition >= 0:
            raise ValueError(f"{value!r}: write persistent://tenant/namespace/topic that is no partition, or none")
        return topic.full


class Fleet(ConfigSection):
    """A fleet: proxies that hold one limit together, see [Fleets](fleet.md)."""

    name: ProxyId = Field(description="name of the fleet, the same in all its members")
    namespace: NamespaceName = Field(
        "public/sluice",
        description="where the fleet's own topics are, which members reach through `broker`; clients may use no topic "
        "there, see [Access](fleet.md#who-can-write-there)",
    )
    cycle: Seconds = Field(0.25, ge=0.02, le=10, description="time between the reports of a member")
    lease: Seconds = Field(
        2.0, ge=0.1, le=120, description="how long a share lasts without an answer from the coordinator"
    )
    isolated: Literal["auto", "fair", "floor", "none"] = Field(
        "auto",
        description="what a cut-off member may pass; fair: the smaller of its last share and of the limit divided by "
        "the number of members; floor: 5 % of that; none: nothing; auto: fair if the brokers refuse, floor if they are "
        "silent",
    )
    weight: Literal["streams", "proxy"] = Field(
        "streams", description="what shares one limit equally: the streams of all members, or the members"
    )
    shared: tuple[str, ...] | None = Field(
        None,
        description="levels whose limits the members share; each member has the whole limits of other levels; default: "
        "all levels except proxy, address and exempt",
    )
    token_file: Path | None = Field(
        None,
        description="file with the token that the fleet's own connections show brokers, whose role may produce and "
        "consume in `namespace`; none: as authentication.broker has it",
    )

    @field_validator("shared")
    @classmethod
    def _are_levels(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value == ():
            raise ValueError(
                "an empty list would share nothing: name levels, leave the key out to share all, or remove fleet"
            )
        for word in value or ():
            if word not in SHAREABLE:
                raise ValueError(f"{word!r} is not a level that can be shared: write some of {', '.join(SHAREABLE)}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.lease < 4 * self.cycle:
            raise ValueError(f"lease: {self.lease:g}s is under four cycles ({4 * self.cycle:g}s); make it longer")
        return self

    @property
    def shared_levels(self) -> frozenset[str]:
        """The levels whose limits the members share."""
        return frozenset(SHAREABLE if self.shared is None else self.shared)


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


class TokenAuthentication(ConfigSection):
    """Clients' tokens (auth method `token`): JSON Web Tokens."""

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
    allowed_clock_skew: Seconds = Field(
        0.0,
        ge=0,
        le=3600,
        description="by how much clocks may differ (tokenAllowedClockSkewSeconds): a token is valid this long before "
        "nbf and after exp",
    )

    @model_validator(mode="after")
    def _has_keys(self) -> Self:
        if self.secret_key is None and self.public_key is None and self.jwks is None:
            raise ValueError("no key is given that verifies tokens: give secret_key, public_key or jwks")
        return self


class BasicAuthentication(ConfigSection):
    """Clients' users and passwords (auth method `basic`)."""

    htpasswd: Path = Field(description="file of users as Apache's htpasswd writes it: bcrypt, apr1 or SHA")


class BrokerCredentials(ConfigSection):
    """The credentials that Sluice shows brokers, as one of their `proxyRoles`."""

    token_file: Path | None = Field(
        None,
        description="file with the token that Sluice shows brokers; none: its certificate, if it has one (broker_tls)",
    )


class Authentication(ConfigSection):
    """The authentication of clients: the broker proves a client's role, or Sluice does."""

    mode: Literal["terminate", "passthrough"] | None = Field(
        None,
        description="passthrough: clients' credentials go on, and the broker decides; terminate: Sluice verifies them "
        "and shows brokers its own, see [Authentication](authentication.md); default: passthrough",
    )
    token: TokenAuthentication | None = None
    basic: BasicAuthentication | None = None
    tls: Flag = Field(
        default=False,
        description="the common name (CN) of a client's verified certificate is its role (auth method tls)",
    )
    broker: BrokerCredentials = BrokerCredentials()
    forward_credentials: Flag = Field(
        default=False,
        description="brokers also get the client's credentials (original_auth_data), to verify them again "
        "(authenticateOriginalAuthData); for tokens and passwords",
    )

    @model_validator(mode="after")
    def _fits_its_mode(self) -> Self:
        given = [key for key in ("token", "basic", "tls", "forward_credentials") if getattr(self, key)]
        given += ["broker"] if self.broker != BrokerCredentials() else []
        if not self.is_terminated and given:
            raise ValueError(f"{given[0]} is of no use in mode passthrough: write mode: terminate, or leave it out")
        if self.is_terminated and not {"token", "basic", "tls"} & {*given}:
            raise ValueError("mode: terminate needs a method by which clients prove roles: give token, basic or tls")
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
