"""`/openapi.json`: the API as OpenAPI 3.1, made of the routes and the types of their bodies."""

from __future__ import annotations

from typing import Any

import msgspec

from skidway import __version__
from skidway.gateways.http import problems
from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.problems import ProblemDetails
from skidway.gateways.http.replies import JSON, Reply
from skidway.gateways.http.routes import Parameter, Route
from skidway.steps import Steps

REFERENCE = "#/components/schemas/{name}"
OTHER_ANSWERS = {"/readyz": 503, "/v1/node/safe-to-stop": 409}
"""Routes that say no in the words of their answer."""


def rows() -> list[Route]:
    return [Route("GET", "/openapi.json", _description, "This description.", early=True, packs=True)]


def _description(call: HttpCall) -> Steps[Reply]:
    yield None
    return Reply(200, JSON, msgspec.json.encode(describe(call.site.routes.rows)))


def describe(routes: Any) -> dict[str, Any]:
    types = [
        each for route in routes for each in (route.body.type, route.answer, route.refusal.type) if each is not None
    ]
    schemas, components = msgspec.json.schema_components([*types, ProblemDetails], ref_template=REFERENCE)
    by_type = dict(zip([*types, ProblemDetails], schemas, strict=True))
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Skidway", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(route: Route, by_type: dict[Any, Any]) -> dict[str, Any]:
    schema = {"type": "string"} if route.answer is None else by_type[route.answer]
    kind = route.content_type.decode()
    answers: dict[str, Any] = {"200": {"description": "Done.", "content": {kind: {"schema": schema}}}}
    if route.creates:
        answers["201"] = {"description": "Made.", "content": {kind: {"schema": schema}}}
    if route.switches:
        answers = {"101": {"description": "From here on both sides speak WebSocket."}}
    if route.template in OTHER_ANSWERS:
        answers[str(OTHER_ANSWERS[route.template])] = {"description": "No.", "content": {kind: {"schema": schema}}}
    refusal = {problems.CONTENT_TYPE.decode(): {"schema": by_type[ProblemDetails]}}
    if route.refusal.type is not None:
        refusal = {kind: {"schema": by_type[route.refusal.type]}}
    for status in route.problems:
        answers.setdefault(str(status), {"description": problems.TITLES[status], "content": refusal})
    answers["default"] = {"description": "A refusal.", "content": refusal}
    operation: dict[str, Any] = {"summary": route.about, "operationId": operation_id(route), "responses": answers}
    given = [*(_in("query", each) for each in route.parameters), *(_in("header", each) for each in route.headers)]
    if parameters := [*_in_path(route), *given]:
        operation["parameters"] = parameters
    if route.body.type is not None:
        content = {each.decode(): {"schema": by_type[route.body.type]} for each in route.body.content_types}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def operation_id(route: Route) -> str:
    words = [segment.strip("{}").replace(".", "-") for segment in route.segments]
    return "-".join([route.method.lower(), *words])


def _in_path(route: Route) -> list[dict[str, Any]]:
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in route.names]


def _in(place: str, parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer" if parameter.type is int else "string"}
    if parameter.default is not None:
        schema["default"] = int(parameter.default) if parameter.type is int else parameter.default
    return {"name": parameter.name, "in": place, "description": parameter.about, "schema": schema}
