"""What is blocked, as it concerns a client as a whole: its address, or what it authenticates as."""

from proxy.blocking.blocklist import Blocklist
from proxy.blocking.rules import Rule
from proxy.observe.connection import Connection


def of(blocklist: Blocklist, connection: Connection) -> Rule | None:
    """What blocks the client right now, which has said who it is."""
    rules = blocklist.rules
    return rules.of_client(connection.client_host, connection.client_role) if rules else None


def refuses(blocklist: Blocklist, connection: Connection) -> Rule | None:
    """The rule that keeps a client out."""
    rule = of(blocklist, connection)
    if rule is not None:
        blocklist.refused(rule)
    return rule


def ends(blocklist: Blocklist, connection: Connection) -> Rule | None:
    """The rule that ends the connection of a client that was let in before."""
    rule = of(blocklist, connection)
    if rule is not None:
        blocklist.ended(rule, connection)
    return rule
