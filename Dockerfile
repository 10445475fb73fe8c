# One image for every role: `serve` (the default), `work`, `demo`, `check`, `migrate`, `keys`, ...
FROM python:3.12-slim-bookworm

LABEL org.opencontainers.image.title="Coalmine" \
      org.opencontainers.image.description="Canary monitoring for retrieval" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.base.name="docker.io/library/python:3.12-slim-bookworm"

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    COALMINE_DATA_DIR=/data \
    COALMINE_LOG_FORMAT=json

RUN groupadd --system --gid 10001 coalmine \
    && useradd --system --uid 10001 --gid coalmine --home-dir /data --shell /usr/sbin/nologin coalmine \
    && install -d -o coalmine -g coalmine -m 0750 /data

WORKDIR /opt/coalmine

# What changes rarely comes first, so that a change of the code downloads nothing. Wheels only: nothing is compiled,
# nothing unhashed is fetched.
COPY requirements.lock ./
RUN pip install --no-deps --require-hashes --only-binary :all: --requirement requirements.lock

# Optional features, comma separated: `docker build --build-arg EXTRAS=otel,apprise .`; what there is: mcp, apprise, otel.
ARG EXTRAS=""
COPY requirements-mcp.lock requirements-apprise.lock requirements-otel.lock ./
RUN IFS=,; for extra in $EXTRAS; do \
        pip install --no-deps --require-hashes --only-binary :all: --requirement "requirements-$extra.lock" || exit 1; \
    done

COPY pyproject.toml README.md LICENSE ./
COPY migrations ./migrations
COPY canaries ./canaries
COPY docs ./docs
COPY app ./app
# Editable: the code stays beside its migrations and its documentation. Compiled here, because the user of the image cannot write.
RUN pip install --no-deps --no-build-isolation --editable . \
    && python -m compileall -q app migrations

USER 10001:10001
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM

# The slim image has no curl. /livez answers even while every worker thread is busy; `work` touches a file instead.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-m", "app.operation.health"]

ENTRYPOINT ["coalmine"]
CMD ["serve", "--host", "0.0.0.0"]
