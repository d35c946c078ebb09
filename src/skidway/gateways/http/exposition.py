"""`/metrics`: what a node measures, in Prometheus' text format.

Samples come one by one and in any order; a metric's lines have to be together. So they are collected by name first, in
the steps in which the node gives them. The number of samples has a bound (`broker.metrics`), and no label has a value
that a client made up, but for the names of topics.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from skidway import __version__
from skidway.broker.metrics import Kind, Metric, Sample, samples
from skidway.gateways.http.replies import NO_STORE, Reply
from skidway.gateways.http.routes import Route
from skidway.runtime.distribution import Distribution
from skidway.steps import Steps

if TYPE_CHECKING:
    from skidway.gateways.http.call import HttpCall
    from skidway.gateways.http.site import HttpSite

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
JOINED_AT_ONCE = 5_000
HTTP_REQUESTS = Metric("skidway_http_requests_total", Kind.COUNTER, ("method", "route", "status"))
HTTP_SECONDS = Metric("skidway_http_request_seconds", Kind.HISTOGRAM, ("method", "route"))
BUILD = Metric("skidway_build_info", Kind.GAUGE, ("version",))
NO_ROUTE = "none"


def rows() -> list[Route]:
    about = "What the node measures, for Prometheus."
    return [Route("GET", "/metrics", _metrics, about, content_type=CONTENT_TYPE, early=True, packs=True)]


def _metrics(call: HttpCall) -> Steps[Reply]:
    site = call.site
    page = Page()
    page.take(Sample(BUILD, (__version__,), 1))
    yield from samples(site.node, page.take)
    site.samples(page.take)
    yield None
    _http_samples(site, page)
    yield None
    return Reply(200, CONTENT_TYPE, (yield from page.text()), NO_STORE)


def _http_samples(site: HttpSite, page: Page) -> None:
    for route in site.routes.rows:
        for status, number in route.answers.items():
            page.take(Sample(HTTP_REQUESTS, (route.method, route.template, str(status)), number))
        if any(route.times.counts):
            page.take(Sample(HTTP_SECONDS, (route.method, route.template), route.times))
    for status, number in site.refused.items():
        page.take(Sample(HTTP_REQUESTS, (NO_ROUTE, NO_ROUTE, str(status)), number))


class Page:
    """Lines by the name of their metric."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def take(self, sample: Sample) -> None:
        metric = sample.metric
        lines = self._lines.get(metric.name)
        if lines is None:
            lines = self._lines[metric.name] = [f"# TYPE {metric.name} {metric.kind.value}\n"]
        pairs = zip(metric.labels, sample.values, strict=True)
        labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in pairs)
        if isinstance(sample.value, Distribution):
            lines += _histogram(metric.name, labels, sample.value)
        elif labels:
            lines.append(f"{metric.name}{{{labels}}} {sample.value}\n")
        else:
            lines.append(f"{metric.name} {sample.value}\n")

    def text(self) -> Steps[bytes]:
        text = bytearray()
        for lines in self._lines.values():
            for begin in range(0, len(lines), JOINED_AT_ONCE):
                text += "".join(lines[begin : begin + JOINED_AT_ONCE]).encode()
                yield None
        return bytes(text)


def _histogram(name: str, labels: str, value: Distribution) -> list[str]:
    """Each bucket has all that took no longer than its bound."""
    counts = list(accumulate(value.counts))
    bounds = [*(str(bound_us / 1_000_000) for bound_us in value.bounds_us), "+Inf"]
    before, braced = (f"{labels},", f"{{{labels}}}") if labels else ("", "")
    lines = [f'{name}_bucket{{{before}le="{bound}"}} {number}\n' for bound, number in zip(bounds, counts, strict=True)]
    return [*lines, f"{name}_sum{braced} {value.total_us / 1_000_000}\n", f"{name}_count{braced} {counts[-1]}\n"]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
