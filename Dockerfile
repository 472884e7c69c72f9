# The proxy's image: no Spark, no load generator's client, no compiler, no pip, no root; any user may run it.
# Two builds of one commit with the same gcc have the same /opt/sluice: the base is named by its digest, packages of Python
# by their hashes. gcc and libc6-dev are Debian 12's of the day of the build. docs/versions.md says how the base is renewed;
# --build-arg PYTHON=… takes another.
ARG PYTHON=python:3.11.16-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

FROM ${PYTHON} AS build
ENV PYTHONHASHSEED=0
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
WORKDIR /src
COPY requirements/proxy.lock requirements/build.lock requirements/sbom.lock requirements/
RUN python -m venv /opt/build && /opt/build/bin/pip install --require-hashes -r requirements/build.lock
RUN python -m venv /opt/sbom && /opt/sbom/bin/pip install --require-hashes -r requirements/sbom.lock
RUN python -m venv --without-pip /opt/sluice && \
    /opt/build/bin/pip --python /opt/sluice install --no-compile --require-hashes -r requirements/proxy.lock
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
# The version is the tag's: the image has no history to ask, and the list of packages reads it here. -f, as steps before
# leave byte code that has the time of their build.
ARG VERSION=0.dev0
RUN sed -i "s/^dynamic = .*/version = \"$VERSION\"/" pyproject.toml && \
    PATH=/opt/build/bin:$PATH hatchling build --target wheel && \
    /opt/build/bin/pip --python /opt/sluice install --no-compile --no-deps dist/*.whl && \
    /opt/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
        --output-file /opt/sluice/sbom.cdx.json /opt/sluice && \
    python -m compileall -q -f --invalidation-mode unchecked-hash /opt/sluice/lib

FROM ${PYTHON}
ARG PYTHON
LABEL org.opencontainers.image.title="Sluice" org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.base.name="${PYTHON}"
# Group 0 may write: a user without an entry in passwd is in it.
RUN install -d -o 10001 -g 0 -m 775 /var/log/sluice /var/lib/sluice
COPY --from=build /opt/sluice /opt/sluice
# The base has pip, setuptools and wheel for its own Python.
RUN rm -rf /usr/local/lib/python3*/site-packages/* /usr/local/lib/python3*/ensurepip /usr/local/bin/pip* /usr/local/bin/wheel*
# The list of packages has Python itself and Debian's, too, and jars: those of this stage.
COPY tools/sbom.py /opt/sbom.py
RUN python /opt/sbom.py /opt/sluice/sbom.cdx.json / && rm /opt/sbom.py
ENV PATH=/opt/sluice/bin:$PATH
USER 10001
EXPOSE 6650 8080 9100
ENTRYPOINT ["/opt/sluice/bin/sluice"]
CMD ["serve", "--config", "/etc/sluice/sluice.yaml"]
