"""The few calls of the broker's admin REST that the tests need."""

from http import HTTPStatus

from adminrest.client import AdminClient, AdminError, topic_path

TENANT = "sluice-test"


class PulsarRest(AdminClient):
    """The broker's, with what tests ask again and again."""

    def ensure_namespace(self, name: str, tenant: str = TENANT) -> None:
        """Make `tenant/name` if it is not there; waits until topics can be made in it."""
        for make, full_name in ((self.make_tenant, tenant), (self.make_namespace, f"{tenant}/{name}")):
            try:
                make(full_name)
            except AdminError as refusal:
                if refusal.status != HTTPStatus.CONFLICT:
                    raise

    def create_partitioned_topic(self, topic: str, partitions: int) -> None:
        self.call("PUT", f"/admin/v2/{topic_path(topic)}/partitions", partitions)

    def create_topic(self, topic: str) -> None:
        self.call("PUT", f"/admin/v2/{topic_path(topic)}")

    def unload(self, topic: str) -> None:
        """Have the broker let go of it: it closes its producers and consumers, who come again."""
        self.call("PUT", f"/admin/v2/{topic_path(topic)}/unload")

    def entries(self, topic: str) -> int:
        """How many entries (a batch is one) the topic's ledgers took in."""
        return int(self.get_json(f"/admin/v2/{topic_path(topic)}/internalStats")["entriesAddedCounter"])

    def client_addresses(self, topic: str) -> set[str]:
        """Where the clients of its producers and consumers are, `host:port`."""
        stats = self.get_json(f"/admin/v2/{topic_path(topic)}/stats")
        consumers = [consumer for of in stats["subscriptions"].values() for consumer in of["consumers"]]
        return {client["address"].lstrip("/") for client in [*stats["publishers"], *consumers]}


def topic_name(namespace: str, local: str) -> str:
    return f"persistent://{TENANT}/{namespace}/{local}"


def _path(topic: str) -> str:
    return topic.replace("://", "/", 1)
