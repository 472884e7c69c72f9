"""The configuration: one YAML file, overridden by flags; every error at once, each with key, value and remedy."""

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from proxy.blocking.config import Block, each_once
from proxy.config_admin import AdminAccess, open_to_all
from proxy.config_admission import AdmissionBounds
from proxy.config_dispatch import Dispatch
from proxy.config_limits import Limits
from proxy.config_policies import PolicyStore
from proxy.config_values import HostPort, ListenAddress, Network, Seconds, Size

_MOST_SHOWN = 200
"""Characters of a wrong value that are shown: a list may have any number."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AccessLog(_Section):
    """Where and how the access log is written."""

    dir: Path | None = Field(None, description="folder for closed log files; none: no access log")
    interval: Seconds = Field(1.0, ge=0.1, le=60, description="time between the lines of an active stream")
    rotate_size: Size = Field(64 * 1024**2, gt=0, description="bytes after which a file is closed")
    rotate_age: Seconds = Field(10.0, gt=0, description="time after which a file is closed")
    queue: Size = Field(
        32 * 1024**2, gt=0, description="bytes that may wait for the disk; more are dropped and counted"
    )


class Publish(_Section):
    """What happens to publishers over their limit, and how much may be held of them."""

    mode: Literal["hold", "pause"] = Field(
        "hold",
        description="a producer over its limit is held alone, or (pause, as in PIP-322) its connection is not read",
    )
    hold_connection: Size = Field(8 * 1024**2, gt=0, description="bytes that one connection may hold")
    hold_total: Size = Field(
        64 * 1024**2,
        gt=0,
        description="bytes that all connections together may hold (maxMessagePublishBufferSizeInMB); a tenant that "
        "holds as much as is left free of two thirds of it, and an equal share at least, is not read where it holds "
        "something; all others are",
    )
    max_batch_messages: int = Field(
        100_000, gt=0, description="messages that one SEND may say it holds: as many its limits are charged"
    )
    max_pending: int = Field(
        0,
        ge=0,
        description="publishes that the broker has not answered, at which a connection is not read until half of them "
        "are (maxPendingPublishRequestsPerConnection); 0: any number, as the broker has this bound itself",
    )


class Config(_Section):
    """Everything that `sluice serve` can be told."""

    listen: ListenAddress = Field("127.0.0.1:6650", description="where Pulsar clients connect")
    broker: HostPort = Field("pulsar://127.0.0.1:6651", description="the broker, or a service URL in front of several")
    admin: ListenAddress = Field("127.0.0.1:8080", description="metrics, health and admin REST")
    metrics: ListenAddress | None = Field(
        None, description="a further address for /metrics and /healthz alone, which needs no token and has no TLS"
    )
    proxy_id: str = Field("sluice", min_length=1, pattern=r"^[A-Za-z0-9._-]+$", description="name in the access log")
    allowed_brokers: tuple[HostPort, ...] = Field((), description="further brokers: host:port, * in the host allowed")
    allowed_broker_networks: tuple[Network, ...] = Field((), description="where those may resolve to; empty: anywhere")
    handshake_timeout: Seconds = Field(30.0, gt=0, description="until a client must be connected through")
    connect_timeout: Seconds = Field(10.0, gt=0, description="for connecting to a broker")
    linger: Seconds = Field(10.0, gt=0, description="how long an ending connection may take to send what is left")
    max_connections: int = Field(10_000, gt=0, description="client connections at once")
    max_lookups_in_flight: int = Field(50_000, gt=0, description="lookups without an answer at once")
    access_log: AccessLog = AccessLog()
    publish: Publish = Publish()
    dispatch: Dispatch = Dispatch()
    limits: Limits = Limits()
    admission: AdmissionBounds = AdmissionBounds()
    policies: PolicyStore = PolicyStore()
    admin_access: AdminAccess = AdminAccess()
    blocks: tuple[Block, ...] = Field(
        (), description="a list of who may not pass, see [Blocking](operating.md#blocking)"
    )

    @field_validator("blocks")
    @classmethod
    def _no_twins(cls, value: tuple[Block, ...]) -> tuple[Block, ...]:
        return each_once(value)

    @field_validator("broker")
    @classmethod
    def _plain(cls, value: str) -> str:
        if not value.startswith("pulsar://"):
            raise ValueError("write the broker as pulsar://host:port")
        return value


class ConfigError(Exception):
    """The configuration cannot be used; `problems` says everything that is wrong, a line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load_config(path: Path | None, flags: dict[str, Any]) -> Config:
    """Read the file, if any, and lay the flags over it.

    Raises:
        ConfigError: With every problem, each naming file, key, value and remedy.
    """
    where = str(path) if path else "flags"
    values = _merged(_read_yaml(path) if path else {}, flags)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError([_explain(where, problem) for problem in error.errors()]) from None
    problem = open_to_all(config.admin, config.admin_access)
    if problem is not None:
        raise ConfigError([f"{where}: {problem}"])
    return config


class _StrictLoader(yaml.SafeLoader):
    """YAML itself lets the last of two equal keys win, silently, and fails on values that look like a type's only."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002
        if not isinstance(node, yaml.ScalarNode):
            return super().construct_object(node, deep)
        try:
            value = super().construct_object(node, deep)
            str(value)  # numbers of any size can be written in hexadecimal; Python shows no more than 4,300 digits
        except (ValueError, ArithmeticError, LookupError, AttributeError):
            kind, shown = node.tag.rpartition(":")[2], _cut(repr(node.value))
            problem = f"{shown} cannot be read as {kind}; put text in quotes"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str | bytes) -> Any:
    """YAML in which each key stands once.

    Raises:
        YAMLError, UnicodeDecodeError, RecursionError: If it is none. The text of the first shows some of the content.
    """
    return yaml.load(text, _StrictLoader)  # noqa: S506 - a SafeLoader


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: is not YAML: {' '.join(str(error).split())}"]) from None
    except RecursionError:
        raise ConfigError([f"{path}: is nested too deeply for a configuration"]) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError([f"{path}: holds a {type(values).__name__}, not keys with values"])
    return values


def _merged(values: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    merged = values | {key: value for key, value in flags.items() if value is not None and key != "access_log"}
    log_dir = flags.get("access_log")
    if log_dir is not None:
        section = merged.get("access_log") or {}
        merged["access_log"] = (section if isinstance(section, dict) else {}) | {"dir": log_dir}
    return merged


def _explain(where: str, problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"] if part not in {"function-before", "[key]"}) or "(top)"
    if problem["type"] == "extra_forbidden":
        return f"{where}: {key}: this key is not known here; see the configuration reference for those that are"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{where}: {key}: {_cut(repr(problem['input']))}: {message}"


def _cut(value: str) -> str:
    return value if len(value) <= _MOST_SHOWN else value[:_MOST_SHOWN] + "…"
