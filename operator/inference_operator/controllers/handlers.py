"""kopf as informer host: its watches feed the informer handlers, and nothing else of it is used (docs/adr/0001).

Handlers never call the API and never raise: kopf would neither retry them nor tell anyone.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import Any

import kopf

from inference_operator.api import job, model, names
from inference_operator.api.schema import GROUP, VERSION
from inference_operator.controllers.informer import InformerHandlers
from inference_operator.kube.connection import Connection

log = logging.getLogger(__name__)

_Take = Callable[..., None]


_BACKOFFS = (1.0, 2.0, 4.0)

# The kinds that are watched, by their plurals: group and version.
WATCHED = {
    job.PLURAL: (GROUP, VERSION),
    model.PLURAL: (GROUP, VERSION),
    "pods": ("", "v1"),
    "nodes": ("", "v1"),
    "persistentvolumes": ("", "v1"),
    "persistentvolumeclaims": ("", "v1"),
    "services": ("", "v1"),
    "endpointslices": ("discovery.k8s.io", "v1"),
    "horizontalpodautoscalers": ("autoscaling", "v2"),
    "poddisruptionbudgets": ("policy", "v1"),
}


def register(
    registry: kopf.OperatorRegistry,
    informer: InformerHandlers,
    connection: Connection,
    heard: Callable[[str], None],
    listed: Callable[[], None],
    kinds: Iterable[str] = WATCHED,
) -> None:
    """Register one event handler for each of these kinds, and the log-in.

    `heard` is told each kind that speaks, and `listed` of each object that comes by a list: whatever is not in it has gone unseen.
    """
    _log_in(registry, connection)

    def listen(take: _Take, kind: str) -> None:
        @kopf.on.event(*WATCHED[kind], kind, registry=registry, id=f"take-{kind}")
        async def on_event(event: Any, **_: Any) -> None:
            heard(kind)
            if event["type"] is None:
                listed()
            try:
                take(event["object"], gone=event["type"] == "DELETED")
            except Exception:
                log.exception("a %s could not be taken in", kind)

    takes: dict[str, _Take] = {
        job.PLURAL: informer.job,
        model.PLURAL: informer.model,
        "pods": informer.pod,
        "nodes": informer.node,
        "persistentvolumes": informer.volume,
        "persistentvolumeclaims": informer.claim,
        "services": informer.service,
        "endpointslices": informer.slice,
        "horizontalpodautoscalers": informer.autoscaler,
        "poddisruptionbudgets": informer.budget,
    }
    for kind in kinds:
        listen(takes[kind], kind)


def _log_in(registry: kopf.OperatorRegistry, connection: Connection) -> None:
    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(
            server=connection.server,
            ca_path=connection.ca_path,
            ca_data=connection.ca_data,
            insecure=connection.tls is None,
            token=connection.bearer(),
            certificate_path=connection.certificate_path,
            private_key_path=connection.key_path,
        )


class PatientBackoffs:
    """Seconds between tries, without an end."""

    def __iter__(self) -> Iterator[float]:
        """Each request begins anew."""
        return chain(_BACKOFFS, repeat(_BACKOFFS[-1]))


def watch_settings() -> kopf.OperatorSettings:
    """Kopf's settings: quiet, server-side filtered, quick to notice a dead stream, and patient with an API server that is away."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = 30
    settings.watching.chunk_size = 500
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 10
    # The API server speaks every minute on each watch. One whose machine died ends no connection.
    settings.watching.inactivity_timeout = 70.0
    settings.watching.reconnect_backoff = 1.0
    # Kubernetes' controllers give the slices that they write for a Service the Service's labels.
    for kind in ("services", "endpointslices", "poddisruptionbudgets"):
        settings.watching.label_selectors[kind] = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
    # An idle worker task an object lives this long: at ten thousand objects five seconds of them are 50 MB.
    settings.queueing.idle_timeout = 0.5
    settings.execution.max_workers = 4
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.networking.enforce_retry_after = True
    # The default waits up to 21 s between tries: after an outage the watches would stay blind that much longer. And when the last
    # try had failed the process would end, and list everything anew: a standby has to be warm when the API server is back. Who
    # hears nothing at all for long is ended by the liveness probe.
    settings.networking.error_backoffs = PatientBackoffs()
    settings.persistence.finalizer = f"{names.DOMAIN}/unused"
    return settings
