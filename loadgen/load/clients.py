"""The few calls of the official Pulsar client that a run needs; the only file that imports the client."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Self

import _pulsar
import pulsar

from loadgen.load.offering import SendError, Settle
from protocol.endpoint import EndpointError, EndpointForm

RECEIVER_QUEUE = 10_000
TIMEOUT_S = 20
"""Longest wait for an answer to a lookup, a new producer or a subscription."""
Record = Callable[[bytes], None]


_SERVICE = EndpointForm(("pulsar", "pulsar+ssl"), "pulsar://HOST:PORT", is_url=True)


def read_service_url(text: str) -> str:
    """Return a service URL as the client takes it: of one host, or of several as `pulsar://a:6650,b:6650`.

    Raises:
        EndpointError: If one of the hosts has another form.
    """
    scheme, divided, hosts = text.partition("://")
    if not divided:
        return str(_SERVICE.parse(text))
    endpoints = [_SERVICE.parse(f"{scheme}://{host}") for host in hosts.split(",")]
    return f"{endpoints[0].scheme}://{','.join(endpoint.address for endpoint in endpoints)}"


class ClientError(Exception):
    """A client could not connect; the text names the address, the cause and the remedy."""


@dataclass(frozen=True, slots=True)
class SharedConsumer:
    """A consumer of a Shared subscription.

    Attributes:
        connection: Who names the same share one client.
        topic: Full name.
        subscription: Its subscription's name.
        queue: Messages in its receiver queue, which it requests at once.
    """

    connection: str
    topic: str
    subscription: str
    queue: int = 1000


class PulsarSender:
    """One producer of a real client."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def send(self, payload: bytes, settle: Settle) -> None:
        """Send, as `offering.Sender.send` says."""

        def settled(result: Any, _message_id: Any) -> None:
            settle("" if result == pulsar.Result.Ok else result.name)

        try:
            self._producer.send_async(payload, settled)
        except _pulsar.PulsarException as error:
            raise SendError(type(error).__name__) from error


class Clients:
    """Clients of one service address, by connection name: one client is one data connection to a broker.

    Used as a context; at its end all connections end, without waiting for messages in flight.

    Args:
        service_url: The address, or several, of which each client takes the next one where one refuses it.
        ca: PEM file of the authorities that verify it, if it has TLS; None for the system's.
    """

    def __init__(self, service_url: str, ca: Path | None = None) -> None:
        self._service_url = service_url
        self._tls = {"tls_trust_certs_file_path": None if ca is None else str(ca), "tls_validate_hostname": True}
        self._by_name: dict[str, Any] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def sender(self, connection: str, topic: str, pending: int, batch: int = 1) -> PulsarSender:
        """A producer on the client that is called `connection`.

        Args:
            connection: Senders of one name share one client.
            topic: Full name.
            pending: Most messages that the caller ever has on their way.
            batch: Messages in a batch, which is also sent when it is 0.1 s old; 1: no batching.

        Raises:
            ClientError: If the producer cannot be created.
        """
        create = partial(
            self._client(connection).create_producer,
            topic,
            # no message is given up: a message without a receipt at the end is counted
            send_timeout_millis=0,
            # the client's own bound is never reached: the caller's is, and its count is exact
            max_pending_messages=2 * pending,
            max_pending_messages_across_partitions=2 * pending,
            **_batching(batch),
        )
        producer = self._asked(f"publish to {topic}", create)
        return PulsarSender(producer)

    def subscribe(self, records: Mapping[str, Record]) -> None:
        """Receive each topic's messages from now on and hand their payloads to its record, from another thread.

        Raises:
            ClientError: If a topic cannot be subscribed to.
        """
        subscription = f"sluice-load-{token_hex(4)}"
        for topic, record in records.items():
            subscribe = partial(
                self._client("receiving").subscribe,
                topic,
                subscription,
                consumer_type=pulsar.ConsumerType.Exclusive,
                receiver_queue_size=RECEIVER_QUEUE,
                message_listener=_listener(record),
            )
            consumer = self._asked(f"receive from {topic}", subscribe)
            self._open.callback(_forget, consumer)

    def consume(self, consumer: SharedConsumer, record: Record) -> None:
        """Receive and acknowledge from now on; payloads go to `record`, from another thread. The subscription stays.

        Raises:
            ClientError: If the subscription is refused.
        """
        self._shared(consumer, message_listener=_listener(record))

    def make_subscription(self, topic: str, name: str) -> None:
        """Make a subscription that keeps messages published from now on, until a consumer takes them.

        Raises:
            ClientError: If it is refused.
        """
        self._shared(SharedConsumer("receiving", topic, name)).close()

    def _shared(self, consumer: SharedConsumer, **options: Any) -> Any:
        subscribe = partial(
            self._client(consumer.connection).subscribe,
            consumer.topic,
            consumer.subscription,
            consumer_type=pulsar.ConsumerType.Shared,
            receiver_queue_size=consumer.queue,
            **options,
        )
        return self._asked(f"receive from {consumer.topic}", subscribe)

    def _client(self, name: str) -> Any:
        if name not in self._by_name:
            logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
            try:
                service = read_service_url(self._service_url)
            except EndpointError as error:
                raise ClientError(str(error)) from None
            client = pulsar.Client(service, logger=logger, operation_timeout_seconds=TIMEOUT_S, **self._tls)
            self._open.callback(client.shutdown)
            self._by_name[name] = client
        return self._by_name[name]

    def _asked(self, action: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except _pulsar.PulsarException as error:
            cause = str(error) or type(error).__name__
            verified = ", does --ca name who has signed its certificate" if "+ssl:" in self._service_url else ""
            raise ClientError(
                f"{self._service_url}: cannot {action}: {cause}: "
                f"is the address right, is it running{verified}, do tenant and namespace exist?"
            ) from error


def _batching(messages: int) -> dict[str, Any]:
    if messages == 1:
        return {}
    # the client's own 10 ms would cut a batch in two whenever the machine is busy
    return {"batching_enabled": True, "batching_max_messages": messages, "batching_max_publish_delay_ms": 100}


def _listener(record: Record) -> Callable[[Any, Any], None]:
    def arrived(consumer: Any, message: Any) -> None:
        record(message.data())
        with suppress(pulsar.AlreadyClosed):  # the client is leaving, with messages still in its queue
            consumer.acknowledge(message)

    return arrived


def _forget(consumer: Any) -> None:
    """Leave no subscription behind; where that fails, the broker is gone and nothing is left to clean."""
    try:
        consumer.unsubscribe()
    except _pulsar.PulsarException:
        return
