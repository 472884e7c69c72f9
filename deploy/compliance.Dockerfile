# The image of the compliance job and the report: Spark, Java and the wheel; no compiler, no root.

FROM python:3.11-slim AS build
WORKDIR /src
COPY requirements/all.lock requirements/
RUN python -m venv /opt/sluice && /opt/sluice/bin/pip install --require-hashes -r requirements/all.lock
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY sluice sluice
COPY proxy proxy
COPY loadgen loadgen
COPY compliance compliance
COPY protocol protocol
COPY limiter limiter
COPY fleet fleet
COPY accesslog accesslog
COPY adminrest adminrest
RUN PATH=/opt/sluice/bin:$PATH HATCH_BUILD_NO_HOOKS=true hatchling build --target wheel && /opt/sluice/bin/pip install --no-deps dist/*.whl

FROM python:3.11-slim
RUN apt-get update && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --create-home sluice && install -d -o sluice /var/lib/sluice
COPY --from=build /opt/sluice /opt/sluice
COPY deploy/compliance_job.py /opt/sluice/compliance_job.py
ENV PATH=/opt/sluice/bin:$PATH
USER 10001
ENTRYPOINT ["/opt/sluice/bin/sluice"]
CMD ["compliance", "run", "--help"]
