"""Numbers for a monitoring system, in the text format that Prometheus and its node_exporter read.

    # HELP rpdp_silo_answers_total Answers that have left the silo.
    # TYPE rpdp_silo_answers_total counter
    rpdp_silo_answers_total{answer="update"} 12

What becomes a metric is public, wherever it is made: whoever can open the page or the file reads it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Labels = tuple[tuple[str, str], ...]
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass
class MetricFamily:
    """One metric with its samples, by labels."""

    name: str
    help: str
    kind: Literal["gauge", "counter"] = "gauge"
    samples: dict[Labels, float] = field(default_factory=dict)

    def add(self, value: float, **labels: str) -> None:
        """Add a sample, or replace the one with these labels."""
        self.samples[tuple(sorted(labels.items()))] = value

    def lines(self) -> list[str]:
        """The family as text; nothing if it has no sample."""
        if not self.samples:
            return []
        rows = [f"{self.name}{_labelled(labels)} {_number(value)}" for labels, value in sorted(self.samples.items())]
        return [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}", *rows]


def metrics_text(families: Iterable[MetricFamily]) -> str:
    """All families as one text."""
    return "".join(f"{line}\n" for family in families for line in family.lines())


def _labelled(labels: Labels) -> str:
    inside = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _number(value: float) -> str:
    if math.isfinite(value):
        return str(int(value)) if value == int(value) else repr(float(value))
    return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
