# A server of Headrace in a container, from nothing but this repository:
#
#     docker build -t headrace .
#     docker run --name headrace -p 127.0.0.1:7070:7070 -p 127.0.0.1:7071:7071 -v headrace:/var/lib/headrace headrace
#     docker exec headrace cat /var/lib/headrace/first-token
#
# Other commands run the same way: docker run headrace --help. compose.yaml adds a console, and PostgreSQL if you want it.

FROM python:3.11-slim AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE THIRD_PARTY_LICENSES.md ./
COPY src src
RUN python -m venv /opt/headrace \
    && /opt/headrace/bin/pip install --no-cache-dir --constraint constraints.txt '.[console,lzop,postgres,tracing]'

FROM python:3.11-slim
COPY --from=build /opt/headrace /opt/headrace
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/headrace --shell /usr/sbin/nologin headrace
ENV PATH=/opt/headrace/bin:$PATH \
    HEADRACE_STORE=file:/var/lib/headrace/store \
    HEADRACE_HTTP=0.0.0.0:7070 \
    HEADRACE_FLIGHT=0.0.0.0:7071 \
    HEADRACE_FIRST_TOKEN_FILE=/var/lib/headrace/first-token
USER headrace
VOLUME /var/lib/headrace
EXPOSE 7070 7071 7072
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:7070/health/ready', timeout=4)"]
ENTRYPOINT ["headrace"]
CMD ["serve"]
