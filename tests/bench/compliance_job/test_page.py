from bench.compliance_job import text
from bench.harness import WIDTH


def test_the_section_fits_the_page():
    assert max(map(len, text("| a table |", {}).splitlines())) <= WIDTH
