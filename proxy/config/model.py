"""The configuration: a YAML file or a folder, under the environment, under flags; every error with its remedy."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from limiter.names import MOST_FORMS, form_of, is_pattern
from protocol.endpoint import PLAIN, TLS, Endpoint
from proxy.block_rules import Block, each_once
from proxy.bulk import let_go
from proxy.config.limits import Limits
from proxy.config.sections import (
    AccessLogSettings,
    AdminAccess,
    AdminForward,
    AdmissionBounds,
    Authentication,
    BrokerTls,
    Dispatch,
    Drain,
    Fleet,
    ListenerTls,
    OperatorLog,
    Otlp,
    PolicyStore,
    ProxyProtocol,
    open_to_all,
)
from proxy.config.sources import (
    Given,
    Sources,
    explain,
    given_by_flags,
    key_of,
    laid_over,
    mistake_of,
    read_environment,
)
from proxy.config.values import (
    AdminAddress,
    BrokerAddress,
    Flag,
    LimitWithMetrics,
    ListenAddresses,
    Network,
    ProxyId,
    Seconds,
    ServiceUrls,
    Size,
    Whole,
)
from proxy.config.written import MOST_SHOWN, File, Folder, read
from proxy.files import FileReader
from proxy.mistakes import BOUNDED, ConfigSection, Mistake, ReadSoFar

MOST_METRICS_LIMITS = 100
"""Entries of `metrics_limits`, at most."""


class Publish(ConfigSection):
    """Publishers over their limit: how they are slowed, and how many bytes of theirs may be held."""

    mode: Literal["hold", "pause"] = Field(
        "hold",
        description="a producer over its limit is held alone, or (pause, as in PIP-322) its connection is not read",
    )
    hold_connection: Size = Field(8 * 1024**2, gt=0, description="bytes that one connection may hold")
    hold_total: Size = Field(
        64 * 1024**2,
        gt=0,
        description="bytes that all connections together may hold (maxMessagePublishBufferSizeInMB); if a tenant holds "
        "as much as is left free of two thirds, and at least an equal share, reading of its connections with held "
        "frames is paused",
    )
    max_batch_messages: Whole = Field(
        100_000,
        gt=0,
        description="messages that a batch may declare, for which limits are charged: a SEND of more ends its "
        "connection, a delivery of more counts as this many",
    )
    max_pending: Whole = Field(
        0,
        ge=0,
        description="publishes that the broker has not answered, at which a connection is not read until half of them "
        "are (maxPendingPublishRequestsPerConnection); 0: any number, as the broker has this bound itself",
    )


class ClientMemory(ConfigSection):
    """Memory for clients beside held entries: streams, names, requests without an answer, CONNECTs."""

    connection: Size = Field(
        128 * 1024**2,
        gt=0,
        description="bytes for one connection, some 40,000 producers or consumers; a command beyond it is refused",
    )
    total: Size = Field(
        512 * 1024**2,
        gt=0,
        description="bytes for all connections together; an address that has as much as is still free gets no more",
    )


class Config(ConfigSection):
    """The configuration of `sluice serve`."""

    listen: ListenAddresses = Field(
        (Endpoint(PLAIN, "127.0.0.1", 6650),),
        description="where Pulsar clients connect; those with `pulsar+ssl://` speak TLS (`tls`)",
    )
    tls: ListenerTls | None = Field(None, validate_default=True)
    processes: Whole = Field(
        1,
        gt=0,
        le=64,
        description="Sluices on that port, members of one fleet, see [More than one core](processes.md); process I has "
        "the ports of `admin` and `metrics` raised by I",
    )
    scheduling: Literal["batch", "normal"] = Field(
        "batch",
        description="batch: Linux lets whoever runs go on when something comes for Sluice (SCHED_BATCH), which saves "
        "CPU beside others on its cores; normal: it may interrupt them, see "
        "[Sharing cores](operating.md#sharing-cores)",
    )
    broker: ServiceUrls = Field(
        (Endpoint(PLAIN, "127.0.0.1", 6651),),
        description="the broker, or a service URL in front of several; of a list each in turn, and one that does not "
        "answer is passed over; `pulsar+ssl://`: all brokers are reached by TLS (`broker_tls`)",
    )
    broker_tls: BrokerTls = BrokerTls()
    admin: AdminAddress = Field(Endpoint("http", "127.0.0.1", 8080), description="metrics, health and admin REST")
    metrics: AdminAddress | None = Field(
        None,
        description="a further address for /metrics, /healthz and /readyz alone, which needs no token and has no TLS",
    )
    metrics_limits: tuple[Annotated[LimitWithMetrics, BOUNDED], ...] = Field(
        (),
        description="limits that are always among the metrics of single limits, beside the fullest ones: a level and a "
        "name or pattern, as `tenant acme`, `topic acme/shop/*`, `proxy`; at most 100, see "
        "[metrics.md](metrics.md#single-limits)",
    )
    proxy_id: ProxyId = Field(
        "sluice",
        description="name in the access log, and what its files begin with: letters, digits, `.`, `_`, `-`; the first "
        "no `.` or `_`, as readers pass over such files",
    )
    proxy_protocol: ProxyProtocol = ProxyProtocol()
    broker_proxy_protocol: Flag = Field(
        default=False,
        description="connections to brokers begin with a header of version 2 that names the client: for brokers with "
        "haProxyProtocolEnabled=true; see [PROXY protocol](proxy-protocol.md)",
    )
    allowed_brokers: tuple[BrokerAddress, ...] = Field(
        (), description="further brokers: host:port, * in the host allowed"
    )
    allowed_broker_networks: tuple[Network, ...] = Field((), description="where those may resolve to; empty: anywhere")
    handshake_timeout: Seconds = Field(30.0, gt=0, description="until a client must be connected through")
    connect_timeout: Seconds = Field(10.0, gt=0, description="for connecting to a broker, all its addresses together")
    write_timeout: Seconds = Field(
        30.0, gt=0, description="how long a client may take nothing of what is sent to it; then its connection ends"
    )
    keep_alive: Seconds = Field(
        30.0,
        ge=3,
        le=3600,
        description="keep-alive of clients and brokers (keepAliveIntervalSeconds; where they differ, the shortest): if "
        "a client or broker vanishes, the other side's connection ends within twice as long; below 7 s and with bytes "
        "under way, within 14 s",
    )
    linger: Seconds = Field(10.0, gt=0, description="how long an ending connection may take to send what is left")
    max_connections: Whole = Field(
        10_000, gt=0, description="client connections at once; the last tenth is for addresses that have fewer than 10"
    )
    max_lookups_in_flight: Whole = Field(
        50_000,
        gt=0,
        description="lookups and other questions about topics without an answer at once; an address that has as "
        "many as are still free gets no more",
    )
    max_lookups_in_flight_per_connection: Whole = Field(5_000, gt=0, description="the same, of one connection")
    client_memory: ClientMemory = ClientMemory()
    access_log: AccessLogSettings = AccessLogSettings()
    publish: Publish = Publish()
    dispatch: Dispatch = Dispatch()
    limits: Limits = Limits()
    admission: AdmissionBounds = AdmissionBounds()
    policies: PolicyStore = PolicyStore()
    drain: Drain = Drain()
    fleet: Fleet | None = None
    authentication: Authentication = Authentication()
    admin_access: AdminAccess = AdminAccess()
    admin_forward: AdminForward = AdminForward()
    log: OperatorLog = OperatorLog()
    otlp: Otlp = Otlp()
    blocks: tuple[Annotated[Block, BOUNDED], ...] = Field(
        (), description="a list of blocked clients, roles, topics …, see [Blocking](operating.md#blocking)"
    )

    @property
    def policy_topic(self) -> str | None:
        """The topic by which policies are changed; None: they are this proxy's own."""
        topic, fleet = self.policies.topic, self.fleet
        if topic is not None:
            return None if topic == "none" else topic
        return None if fleet is None else f"persistent://{fleet.namespace}/{fleet.name}-policies"

    @property
    def dials_brokers_of_members(self) -> bool:
        """Whether a broker that another member of the fleet names is dialled.

        With mode `terminate` a broker gets Sluice's own credentials, and a role that may write to the fleet's topics
        could name any address.
        """
        shows_credentials = self.authentication.mode == "terminate"
        return not shows_credentials or _is_confined(self.broker[0], self.broker_tls, self.allowed_broker_networks)

    @property
    def way_to_brokers(self) -> tuple[object, ...]:
        """How brokers are reached, which credentials they are shown, and which are trusted.

        A process goes on with the way of its start; it may take other brokers of the same way.
        """
        header = self.broker_proxy_protocol
        return self.broker[0].scheme, self.broker_tls, self.authentication, header, self.dials_brokers_of_members

    @field_validator("metrics_limits")
    @classmethod
    def _are_few(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > MOST_METRICS_LIMITS:
            raise ValueError(
                f"{len(value)} limits are named, and at most {MOST_METRICS_LIMITS} may be: use patterns, as "
                "topic acme/shop/*"
            )
        twin = next((each for number, each in enumerate(value) if each in value[:number]), None)
        if twin is not None:
            raise ValueError(f"{twin!r} occurs twice in the list")
        forms = {(each.partition(" ")[0], form_of(each)) for each in value if is_pattern(each)}
        if len(forms) > MOST_FORMS:
            raise ValueError(
                f"the patterns have {len(forms)} forms, and at most {MOST_FORMS} are allowed: patterns are of one form "
                "if they have as many characters before and after each *; use fewer lengths"
            )
        return value

    @field_validator("blocks")
    @classmethod
    def _no_twins(cls, value: tuple[Block, ...]) -> tuple[Block, ...]:
        return each_once(value)

    @field_validator("tls")
    @classmethod
    def _listens_with_tls(cls, value: ListenerTls | None, info: ValidationInfo) -> ListenerTls | None:
        listen: tuple[Endpoint, ...] | None = info.data.get("listen")
        if listen is None:
            return value
        with_tls = [each for each in listen if each.scheme == TLS]
        if value is None and with_tls:
            raise ValueError(f"{with_tls[0]} in listen needs a certificate: set tls.certificate and tls.key")
        if value is not None and not with_tls:
            raise ValueError(
                f"no address in listen has TLS, so clients would be served without: write one as {TLS}://HOST:PORT, or "
                "leave tls out"
            )
        return value

    @field_validator("broker_tls")
    @classmethod
    def _reaches_with_tls(cls, value: BrokerTls, info: ValidationInfo) -> BrokerTls:
        broker: tuple[Endpoint, ...] | None = info.data.get("broker")
        if broker is not None and broker[0].scheme != TLS and value != BrokerTls():
            raise ValueError(
                f"{broker[0]} is reached without TLS: write broker as {TLS}://HOST:PORT, or leave broker_tls out"
            )
        return value

    @field_validator("admin_forward")
    @classmethod
    def _has_callers(cls, value: AdminForward, info: ValidationInfo) -> AdminForward:
        access: AdminAccess | None = info.data.get("admin_access")
        if value.caller == "authorization" and access is not None and access.tokens is not None:
            raise ValueError(
                "caller: authorization is of no use with admin_access.tokens: callers show Sluice's token there; write "
                "caller: principal"
            )
        return value

    @field_validator("authentication")
    @classmethod
    def _is_shown_certificates(cls, value: Authentication, info: ValidationInfo) -> Authentication:
        """The common name of a certificate is a role only where the listener has verified the certificate."""
        if value.tls and "tls" in info.data:
            tls: ListenerTls | None = info.data["tls"]
            if tls is None or tls.client_ca is None:
                raise ValueError("tls needs a listener that verifies clients' certificates: set tls.client_ca")
        return value

    @field_validator("allowed_brokers")
    @classmethod
    def _reached_alike(cls, value: tuple[Endpoint, ...], info: ValidationInfo) -> tuple[Endpoint, ...]:
        """An address without a scheme has that of `broker`, as all brokers are reached in the same way."""
        broker: tuple[Endpoint, ...] | None = info.data.get("broker")
        if broker is None:
            return value
        scheme = broker[0].scheme
        for each in value:
            if each.scheme not in {"", scheme}:
                raise ValueError(f"{each}: all brokers need the scheme of broker: write {scheme}://{each.address}")
        return tuple(each._replace(scheme=scheme) for each in value)

    @field_validator("authentication")
    @classmethod
    def _credentials_go_to_brokers_only(cls, value: Authentication, info: ValidationInfo) -> Authentication:
        """Clients name their broker, which gets Sluice's own credentials: a pattern must match brokers only."""
        allowed = info.data.get("allowed_brokers") or ()
        pattern = next((each for each in allowed if "*" in each.host or "?" in each.host), None)
        if value.mode != "terminate" or pattern is None:
            return value
        if not _is_confined(pattern, info.data.get("broker_tls"), info.data.get("allowed_broker_networks") or ()):
            raise ValueError(
                "mode terminate shows Sluice's own credentials to every broker that a client may name, and "
                f"{pattern.host} in allowed_brokers may be any host: set allowed_broker_networks, or reach brokers by "
                "pulsar+ssl"
            )
        return value

    @field_validator("admin", "metrics")
    @classmethod
    def _apart(cls, value: Endpoint | None, info: ValidationInfo) -> Endpoint | None:
        """Each listens by itself, that of each process as well; of port 0 the system makes different ones."""
        count = info.data.get("processes", 1)
        taken = {each.address: "listen" for each in info.data.get("listen") or ()}
        taken |= {each.address: "admin" for each in _of_processes(info.data.get("admin"), count)}
        for at in _of_processes(value, count):
            if at.port > _MOST_PORT:
                raise ValueError(f"the last of {count} processes would have port {at.port}: give a lower port")
            if at.address in taken:
                raise ValueError(
                    f"{taken[at.address]} listens on {at.address} already: give this one a port of its own"
                )
        return value


_MOST_PORT = 65535


def _is_confined(broker: Endpoint, broker_tls: BrokerTls | None, networks: Sequence[Network]) -> bool:
    """Return whether only brokers of the operator's answer at a name that a client or a member of the fleet chooses."""
    is_verified = broker.scheme == "pulsar+ssl" and broker_tls is not None and broker_tls.verify_hostname
    return is_verified or bool(networks)


def _of_processes(endpoint: Endpoint | None, count: int) -> list[Endpoint]:
    """The address of each process; none where the system chooses the port."""
    if endpoint is None or not endpoint.port:
        return []
    return [endpoint._replace(port=endpoint.port + index) for index in range(count)]


class ConfigError(Exception):
    """The configuration cannot be used.

    Args:
        problems: A line for each mistake.
        mistakes: The mistakes of a configuration that was read.
        usable: The part that can be used at a reload; None: nothing.
        take: Puts that part of a file in force, see `FileReader`; None: nothing of it can be used.
    """

    def __init__(
        self,
        problems: list[str],
        mistakes: Sequence[Mistake] = (),
        usable: "UsablePart | None" = None,
        take: Callable[[], object] | None = None,
    ) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.mistakes = mistakes
        self.usable = usable
        self.take = take


@dataclass(frozen=True, slots=True)
class UsablePart:
    """The part of a folder's changed files that is taken at a reload; the content of before holds of all others.

    Args:
        config: The configuration.
        taken: The changed files that are taken.
        kept: The others, each with the reason in a few words, which name no key.
    """

    config: Config
    taken: tuple[str, ...]
    kept: Mapping[str, str]


def take_all(readers: Iterable[FileReader]) -> None:
    """Read files for the first time, and put their content in force.

    Raises:
        ConfigError: With the problems of every file that cannot be used.
    """
    problems: list[str] = []
    for reader in readers:
        try:
            reader.read()()
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)


NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


NO_LIMITS = (
    "no limits are configured: nothing is limited but by values set at run time (REST, pulsar-admin, sluice apply); "
    "write limits: {} if that is meant"
)
"""The warning about a configuration without the key `limits`."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration with its values and their sources.

    Args:
        config: The configuration.
        values: Every value that was given, as it was written.
        sources: The source of each value.
        has_empty_file: Whether there is a file, and no key in it.
    """

    config: Config
    values: Mapping[str, Any]
    sources: Sources
    has_empty_file: bool = False


def load_config(path: Path | None, flags: dict[str, Any], environment: Mapping[str, str] = NO_VARIABLES) -> Config:
    """Read the file, or the folder's files, if any; lay the environment over it, and the flags over both.

    Raises:
        ConfigError: With every problem, each naming file, variable or flag, key, value and remedy.
    """
    return load(path, flags, environment).config


def load(
    path: Path | None, flags: dict[str, Any], environment: Mapping[str, str], written: File | Folder | None = None
) -> Loaded:
    """Read the configuration as `load_config` does, and keep the values and sources that it was made of.

    Args:
        path: The file or folder.
        flags: The flags.
        environment: The variables.
        written: The content of the file or folder; None: it is read.

    Raises:
        ConfigError: As `load_config`.
    """
    over, of_variables = read_environment(Config, environment)
    over += given_by_flags(flags)
    file = read(path) if written is None else written
    problems = [*file.problems, *of_variables]
    mistakes = [*file.mistakes, *map(Mistake, of_variables)]
    sources = _sources(path, file, over)
    so_far = ReadSoFar()
    try:
        given = laid_over(file.values, over)
        config = Config.model_validate(given, context=so_far)
    except ValidationError as error:
        errors = [
            each for each in error.errors() if sources.is_given_over(each["loc"]) or file.is_read_at(key_of(each))
        ]
        shown, more = errors[:MOST_SHOWN], len(errors) - MOST_SHOWN
        sources.find_lines(key_of(each) for each in shown)
        others = [f"{sources.of(())}: {more} more problems at least"] if more > 0 else []
        raise ConfigError(
            [*(explain(sources, each, Config) for each in shown), *others, *problems],
            [*mistakes, *map(mistake_of, errors)],
        ) from None
    finally:
        so_far.let_go()
    problem = open_to_all(config.admin, config.admin_access) if file.is_read_at(("admin",)) else None
    if problem is not None:
        sources.find_lines([("admin",)])
        problems.append(f"{sources.place(('admin',))}: {problem}")
        mistakes.append(Mistake(problem, places=((("admin",),), (("admin_access",),))))
    if problems:
        let_go(vars(config.limits))
        raise ConfigError(problems, mistakes)
    return Loaded(config, given, sources, path is not None and not file.values)


def usable_part(path: Path | None, flags: dict[str, Any], environment: Mapping[str, str]) -> Loaded | None:
    """Return the configuration without the sections that have mistakes; None if the rest is none without them."""
    over, _ = read_environment(Config, environment)
    over += given_by_flags(flags)
    file = read(path)
    given = laid_over(file.values, over)
    for _ in range(2):
        try:
            config = Config.model_validate(given, context=ReadSoFar())
        except ValidationError as error:
            wrong = {str(each["loc"][0]) for each in error.errors() if each["loc"]}
            given = {key: value for key, value in given.items() if key not in wrong}
        else:
            return Loaded(config, given, _sources(path, file, over))
    return None


def _sources(path: Path | None, file: File | Folder, over: Iterable[Given]) -> Sources:
    return Sources(str(path) if path else "defaults", file.values, over, file.text or "", file.parts)
