"""The job's figures for Prometheus, as a file for node_exporter's textfile collector."""

from datetime import datetime

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from compliance.stream.ledger import Summary

FILE = "metrics.prom"
_COUNTS = {
    "lines": "Lines of the access log that were read, copies and malformed ones included.",
    "malformed": "Lines that are no records.",
    "duplicates": "Copies of lines.",
    "missing": "Lines that are missing below the last of their run.",
    "lost": "Lines that proxies say to have lost.",
}
_TIMES = {
    "tables": "Time up to which the tables have all lines; time() less this is how far they lag behind.",
    "report": "Time up to which the report of --report has all lines; time() less this is how far it lags behind.",
}


def encoded(summary: Summary, reported: datetime | None) -> bytes:
    """Return the figures in Prometheus' text format.

    Args:
        summary: The job's summary.
        reported: The time up to which the report has all lines; None: there is none, or it is not known.
    """
    registry = CollectorRegistry()
    for name, description in _COUNTS.items():
        Gauge(f"sluice_compliance_{name}", description, registry=registry).set(getattr(summary, name))
    in_tables = summary.complete_up_to and datetime.fromisoformat(summary.complete_up_to)
    for (name, description), moment in zip(_TIMES.items(), (in_tables, reported), strict=True):
        if moment:
            gauge = Gauge(f"sluice_compliance_{name}_complete_timestamp_seconds", description, registry=registry)
            gauge.set(moment.timestamp())
    return generate_latest(registry)
