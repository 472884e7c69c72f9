"""What Sluice's metrics say."""

from prometheus_client.parser import text_string_to_metric_families

from adminrest.client import AdminClient
from tests.real.sluice_process import SluiceProcess


def counted(sluice: SluiceProcess, name: str, **labels: str) -> float:
    """The sum of a metric over everything that has these labels."""
    families = list(text_string_to_metric_families(AdminClient(sluice.admin_url).get("/metrics").decode()))
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())
