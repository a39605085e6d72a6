"""What a dashboard is made of, and the parts of queries that many have."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How a panel draws its series."""

    LINES = "lines"
    STACK = "stack"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL, and the legend of each series with labels as {{label}}."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """`about` is one sentence for whoever hovers over the title. `unit` is one of Grafana's."""

    title: str
    about: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: Kind = Kind.LINES


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top: the values of `label` over the series of `metric`."""

    name: str
    label: str
    metric: str


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard; `name` is its file's."""

    name: str
    about: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()

    @property
    def title(self) -> str:
        """Its title in Grafana."""
        return f"Inference / {self.name.capitalize()}"


NAMESPACE = Variable("namespace", "namespace", "inference_jobs")
JOB = Variable("job", "inference_job", 'inference_ready{namespace=~"$namespace"}')
INSTANCE = Variable("instance", "instance", 'inference_ready{namespace=~"$namespace",inference_job=~"$job"}')

IN_NAMESPACE = 'namespace=~"$namespace"'
OF_JOB = f'{IN_NAMESPACE},inference_job=~"$job"'
OF_WORKER = f'{OF_JOB},instance=~"$instance"'


def rate(series: str, by: str = "") -> str:
    """Return a sum of rates, by labels."""
    return f"sum{_by(by)}(rate({series}[$__rate_interval]))"


def quantile(share: float, histogram: str, selector: str = "", by: str = "") -> str:
    """Return a quantile of a histogram, by labels."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({histogram}_bucket{{{selector}}}[$__rate_interval])))"


def quantiles(histogram: str, selector: str = "", by: str = "") -> tuple[Query, ...]:
    """Return the median, p95 and p99 of a histogram."""
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(",")) + " " if by else ""
    return tuple(Query(quantile(share, histogram, selector, by), f"{legend}p{share * 100:.0f}") for share in (0.5, 0.95, 0.99))


def total(series: str, by: str = "") -> str:
    """Return a sum, by labels."""
    return f"sum{_by(by)}({series})"


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else ""
