"""The proxies that are measured beside each other: how each is had and started."""
