"""The job as a script: `spark-submit --master … [--py-files pulsar_sluice.whl] compliance_job.py run --once …`.

The same as `sluice compliance …`, whose options it takes. Executors parse lines too: their Python needs
msgspec, pyarrow and pandas.
"""

from compliance.commands import app

if __name__ == "__main__":
    app(prog_name="compliance_job.py")
