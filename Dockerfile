# The gateway alone: no torch, no vLLM, no compiler in what ships. With EXTRAS=gateway,engine-gpu it is an engine, too, and
# has the compiler that Triton calls while it runs.
#   docker build -t duet-gateway .
#   docker run -p 8000:8000 -e DUET_PREFILL=http://p:8100 -e DUET_DECODE=http://d:8200 -e DUET_REDIS_URL=redis://r:6379/0 duet-gateway

FROM python:3.11-slim AS build
ARG EXTRAS=gateway
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/duet
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY common common
COPY gateway gateway
COPY engines engines
COPY cli cli
RUN /opt/duet/bin/pip install -c constraints.txt ".[${EXTRAS}]"

FROM python:3.11-slim
LABEL org.opencontainers.image.title="duet-gateway" org.opencontainers.image.licenses="Apache-2.0"
ARG EXTRAS=gateway
RUN case "$EXTRAS" in *engine*) apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* ;; esac
RUN useradd --system --uid 10001 --create-home duet
COPY --from=build /opt/duet /opt/duet
USER 10001
ENV PATH=/opt/duet/bin:$PATH PYTHONUNBUFFERED=1 DUET_HOST=0.0.0.0 DUET_PORT=8000
EXPOSE 8000
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "import os,urllib.request;urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"DUET_PORT\"]}/livez',timeout=2)"]
ENTRYPOINT ["duet"]
CMD ["gateway"]
