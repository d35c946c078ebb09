"""All routes, a row each, new for each gateway: a row counts its answers."""

from skidway.gateways.http import exposition, health, openapi
from skidway.gateways.http.confluent import rows as confluent
from skidway.gateways.http.queues import rows as queues
from skidway.gateways.http.routes import Route
from skidway.gateways.http.sockets import session as sockets
from skidway.gateways.http.topics import rows as topics


def rows() -> list[Route]:
    return [
        *health.rows(),
        *exposition.rows(),
        *topics.rows(),
        *queues.rows(),
        *sockets.rows(),
        *confluent.rows(),
        *openapi.rows(),
    ]
