"""The files shipped for monitoring name existing metrics and labels."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eventkit.conformance import proves
from eventkit.http.service import ServiceMetrics
from eventkit.metrics import Histogram, Metric
from eventkit.worker.metrics import Metrics

DOCS = Path(__file__).parent.parent / "docs"

METRICS: dict[str, Metric] = {metric.name: metric for registry in (Metrics(), ServiceMetrics()) for metric in registry}

ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((DOCS / "alerts.yml").read_text("utf-8"))["groups"] for rule in group["rules"]
]
PANELS: list[dict[str, Any]] = json.loads((DOCS / "grafana.json").read_text("utf-8"))["panels"]


def expressions() -> Iterator[tuple[str, str]]:
    """Yield each expression, and the text beside the metric that may name a label."""
    for rule in ALERTS:
        yield rule["expr"], " ".join(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    for panel in PANELS:
        for target in panel["targets"]:
            yield target["expr"], " ".join(re.findall(r"{{(\w+)}}", target["legendFormat"]))


def sampled(name: str) -> Metric | None:
    """Return the metric that has samples of this name."""
    if name in METRICS and not isinstance(METRICS[name], Histogram):
        return METRICS[name]
    base, _, suffix = name.rpartition("_")
    return (
        METRICS.get(base) if suffix in ("bucket", "sum", "count") and isinstance(METRICS.get(base), Histogram) else None
    )


@proves("E9")
def test_no_name_is_of_two_metrics() -> None:
    assert len(METRICS) == len([*Metrics()]) + len([*ServiceMetrics()])


@proves("E9")
@pytest.mark.parametrize("expression", [*expressions()], ids=lambda pair: pair[0][:60])
def test_what_monitors_ask_for_is_there(expression: tuple[str, str]) -> None:
    """Each name is a sample's, each label is the metric's, and displayed values are not summed up."""
    text, shown = expression
    names = re.findall(r"\beventkit_\w+", text)
    assert names, text
    assert all(map(sampled, names)), names
    kept: set[str] = set()
    for labels, name in re.findall(r"by \((.*?)\) \([^)]*?(eventkit_\w+)", text):
        metric, grouped = sampled(name), set(labels.split(", ")) - {"le"}
        assert metric is not None
        assert grouped <= set(metric.labels), text
        kept |= grouped
    assert set(shown.split()) <= kept, text
    for name, selected in re.findall(r"(eventkit_\w+){(.*?)}", text):
        metric = sampled(name)
        assert metric is not None
        assert set(re.findall(r"(\w+)=", selected)) <= set(metric.labels), text


@proves("E9")
def test_panels_do_not_lie_on_each_other() -> None:
    taken = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
