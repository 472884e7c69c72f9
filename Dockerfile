# The proxy's image: no Spark, no load generator's client, no compiler, no root.

FROM python:3.11-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
WORKDIR /src
COPY requirements/proxy.lock requirements/build.lock requirements/
RUN python -m venv /opt/sluice && /opt/sluice/bin/pip install --require-hashes -r requirements/proxy.lock
RUN python -m venv /opt/build && /opt/build/bin/pip install --require-hashes -r requirements/build.lock
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
RUN PATH=/opt/build/bin:$PATH hatchling build --target wheel && /opt/sluice/bin/pip install --no-deps dist/*.whl

FROM python:3.11-slim
RUN useradd --uid 10001 --create-home sluice && install -d -o sluice /var/log/sluice
COPY --from=build /opt/sluice /opt/sluice
USER 10001
EXPOSE 6650 8080 9100
ENTRYPOINT ["/opt/sluice/bin/sluice"]
CMD ["serve", "--config", "/etc/sluice/sluice.yaml"]
