"""What each tenant of a model has had, as series. Tenants beyond the first 64 are counted as one."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from inference_worker.batching.tenants import Ledger, Usage

_COUNTERS: tuple[tuple[str, str, Callable[[Usage], float]], ...] = (
    ("inference_tenant_requests", "Requests of a tenant that were let in.", lambda usage: usage.requests),
    ("inference_tenant_refused", "Requests of a tenant that were refused: quota, queue or deadline.", lambda usage: usage.refused),
    ("inference_tenant_rows", "Rows of a tenant that were run.", lambda usage: usage.rows),
    ("inference_tenant_compute_seconds", "A tenant's part of the runs of the model, by rows.", lambda usage: usage.seconds),
)


def of_tenants(names: tuple[str, ...], labels: tuple[str, ...], ledger: Ledger) -> Iterator[Metric]:
    """The series of one model, whose labels have these names and values."""
    known = list(ledger.usage.items())
    for name, text, value_of in _COUNTERS:
        counter = CounterMetricFamily(name, text, labels=(*names, "tenant"))
        for tenant, usage in known:
            counter.add_metric((*labels, tenant), value_of(usage))
        yield counter
    held = GaugeMetricFamily("inference_tenant_in_flight", "Requests of a tenant that wait or run.", labels=(*names, "tenant"))
    for tenant, usage in known:
        held.add_metric((*labels, tenant), usage.held)
    yield held
