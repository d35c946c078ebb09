"""Every route is described, and answers what its description says."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from http_world import HttpWorld

from skidway.gateways.http import openapi
from skidway.gateways.http.problems import ProblemDetails
from skidway.gateways.http.routes import Route
from skidway.gateways.http.table import rows

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "http.md"
VALUES = {"topic": "t", "queue": "q", "schedule": "s"}
SCHEDULE = {"id": "s", "body": "x", "cron": "0 8 * * *"}
BODIES: dict[str, Any] = {
    "/v1/topics/{topic}/produce": {"records": [{"key": "k", "value": {"a": [1]}, "headers": {}}]},
    "/topics/{topic}": {"records": [{"value": {"a": [1]}}]},
    "/v3/clusters/{cluster}/topics/{topic}/records": {"value": {"type": "JSON", "data": 1}},
    "/v1/queues/{queue}/receive": {"max": 2},
}
UNKNOWN_ID = "cf44528f-0000-4000-8000-0000020779de"


def body_of(route: Route, queue: str, message: str) -> Any:
    match route.method, route.template:
        case "POST", "/messages":
            return {"queue": queue, "messages": [{"body": "text", "attributes": {"a": "b"}}]}
        case "POST", "/ack":
            return {"messageId": message}
        case "PUT", "/v1/queues/{queue}":
            return {"visibilityMs": 5}
        case "POST", "/v1/queues/{queue}/schedules":
            return SCHEDULE
        case "POST", template:
            return BODIES.get(template)
        case _:
            return None


def ask(route: Route, **values: str) -> Any:
    world = HttpWorld(auto_create_topics=not values)
    world.peer().create("t")
    world.http().ask("PUT", "/v1/queues/q")
    (sent,) = world.http().ask("POST", "/messages", {"queue": "q", "messages": [{"body": 1}]}).json()["messages"]
    assert world.http().ask("POST", "/v1/queues/q/schedules", SCHEDULE).status == 201
    target = route.template
    known = {**VALUES, "cluster": world.node.cluster_id, "message": sent["messageId"], **values}
    for name in route.names:
        target = target.replace(f"{{{name}}}", known[name])
    if (route.method, target) == ("GET", "/messages"):
        target += f"?queue={known['queue']}"
    body = body_of(route, known["queue"], known["message"])
    headers = {"content_type": route.body.content_types[0].decode()} if body is not None else {}
    return world.http().ask(route.method, target, body, **headers)


@pytest.mark.parametrize(
    "route", [each for each in rows() if not each.streams], ids=lambda route: f"{route.method} {route.template}"
)
def test_a_route_answers_what_it_says(route: Route) -> None:
    answer = ask(route)
    assert answer.status == 200
    assert answer.headers["content-type"] == route.content_type.decode()
    if route.answer is not None:
        # What was left over, or has another name, is not in the value that the type makes of it.
        assert msgspec.to_builtins(msgspec.json.decode(answer.body, type=route.answer)) == answer.json()


@pytest.mark.parametrize(
    "route",
    [route for route in rows() if 404 in route.problems and route.method != "PUT"],  # which makes what is not there
    ids=lambda route: f"{route.method} {route.template}",
)
def test_a_refusal_has_its_shape(route: Route) -> None:
    answer = ask(route, topic="not%20a%20name", queue="nowhere", message=UNKNOWN_ID)
    assert answer.status == 404
    details = msgspec.json.decode(answer.body, type=route.refusal.type or ProblemDetails)
    assert msgspec.to_builtins(details) == answer.json()


def test_the_description_is_whole() -> None:
    answer = HttpWorld().http().ask("GET", "/openapi.json")
    document = answer.json()
    assert document["openapi"] == "3.1.0"
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(route.method, route.template) for route in rows()}
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)
    schemas = document["components"]["schemas"]
    for name in re.findall(r'"#/components/schemas/([^"]+)"', answer.body.decode()):
        assert name in schemas
    assert "RecordToProduce" in schemas
    for methods in document["paths"].values():
        for operation in methods.values():
            assert set(operation["responses"]) & {"101", "200"}
            assert "default" in operation["responses"]


def test_every_name_in_a_path_is_a_parameter() -> None:
    document = openapi.describe(rows())
    for path, methods in document["paths"].items():
        for operation in methods.values():
            given = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"]
            assert given == re.findall(r"{(\w+)}", path)


def test_every_route_is_in_the_reference() -> None:
    told = re.findall(r"^\| `([A-Z]+) ([^`?]+)", REFERENCE.read_text(), re.MULTILINE)
    assert sorted(told) == sorted((route.method, route.template) for route in rows())
