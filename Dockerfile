# docker build -t skidway . && docker run -p 9092:9092 skidway
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.13-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/* && rm -rf /wheels \
    && useradd --system --uid 1000 --home-dir /var/lib/skidway --create-home skidway
USER skidway
WORKDIR /var/lib/skidway
VOLUME /var/lib/skidway
EXPOSE 9092
STOPSIGNAL SIGTERM
# Clients on the host reach the broker at the published port. In a network of containers set SKIDWAY_ADVERTISE to the
# name under which the others reach this one.
ENV SKIDWAY_LISTEN=0.0.0.0:9092 SKIDWAY_ADVERTISE=127.0.0.1:9092 SKIDWAY_DATA_DIR=/var/lib/skidway/data
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
    CMD ["skidway", "topic", "list", "--bootstrap", "127.0.0.1:9092"]
ENTRYPOINT ["skidway"]
CMD ["serve"]
