"""What the cache tells Prometheus. Names are an API: docs/reference/metrics.md lists them."""

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inference_worker.node_cache.store import ModelStore


class Metrics(Collector):
    """Plain counts, made into metrics when somebody scrapes."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, store: ModelStore) -> None:
        self.hits = 0
        self.misses = 0
        self.forbidden = 0
        self.sent_bytes = 0
        self.prefetched = 0
        self.prefetch_failures = 0
        self._store = store
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        store = self._store
        for name, text, value in (
            ("hits", "Models that workers got.", self.hits),
            ("misses", "Models that workers asked for and that were not there.", self.misses),
            ("forbidden", "Requests with a token that is not the model's.", self.forbidden),
            ("sent_bytes", "Bytes that workers got.", self.sent_bytes),
            ("received_bytes", "Bytes of models that came, from workers or by prefetching.", store.counts.received_bytes),
            ("prefetched", "Models that were fetched before a worker asked.", self.prefetched),
            ("prefetch_failures", "Models that could not be prefetched.", self.prefetch_failures),
            ("refused", "Models that were not taken: wrong bytes, or no room.", sum(store.counts.refused.values())),
        ):
            yield CounterMetricFamily(f"inference_node_cache_{name}", text, value=value)
        gone = store.counts.given_way
        yield CounterMetricFamily("inference_node_cache_evictions", "Models that gave way to others.", value=gone)
        yield GaugeMetricFamily("inference_node_cache_size_bytes", "Bytes of all models.", value=store.used)
        yield GaugeMetricFamily(
            "inference_node_cache_limit_bytes", "The most bytes of models, as nodeCache.sizeLimit.", store.limit
        )
        yield GaugeMetricFamily("inference_node_cache_models", "Different models that are here.", value=store.models)
