"""The operator's settings: frozen, typed, from one YAML file that the chart writes.

Every field has a default that works on a cluster with NVIDIA's device plugin.
The module is longer than others: every setting is found here.
"""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from inference_operator.accelerator_faults import fault_of, unreadable
from inference_operator.accelerators import AcceleratorClass, default_classes, with_quantities
from inference_operator.namespace_limits import NamespaceLimits, namespace_fault, with_defaults
from inference_operator.payloads import Payloads, payloads_fault
from inference_operator.signatures import SignatureRule, signatures_fault
from inference_operator.template_limits import TemplateLimits, limits_fault
from inference_operator.tenants import Tenants, tenants_fault
from inference_protocol.hosts import entry_fault, proxy_fault
from inference_protocol.storage import endpoint_fault

# Bounds of numbers; Helm's schema has them from here.
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
# What metadata.name of an object of Kubernetes may be.
_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]

# The kubelet maps so many ids into a pod's user namespace.
_LARGEST_MAPPED_ID = 65535


LogFormat = Literal["json", "text"]


class ConfigurationError(Exception):
    """The settings file can't be used; the message names the field."""


class CostWeights(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """cost = delay weight * latency [s] + alpha * energy [J] + beta * switch [s].

    The delay weight is `early` for work with a deadline, else 1.
    """

    # Seconds that one joule is worth: at 0.001 a second of a 300 W board counts as 0.3 s.
    alpha: float = 0.001
    # How much a second of model loading counts over its share in the latency.
    beta: float = 0.5
    # What a second of latency counts for work that will be in time all the same: being early is worth little.
    early: float = 0.02


class Tracing(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Where workers send traces."""

    # An OTLP/HTTP collector, for example http://collector.monitoring:4318; empty for no traces.
    endpoint: str = ""
    # Share of requests without a traced caller that are traced all the same. Traced callers' requests always are.
    ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class AutoscalingSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How load is measured, and how the HPAs that the operator makes behave."""

    # Seconds over which latency and load are measured: shorter follows quicker, longer trembles less.
    window_seconds: float = 15.0
    # The HPA goes down only to the most workers that were wanted in this time.
    scale_down_seconds: int = 60


class CustomMetrics(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The API custom.metrics.k8s.io, served by the operator itself. The chart fills this in."""

    # Whether to serve it at all.
    enabled: bool = False
    # Port of the TLS server.
    port: int = 8443
    # The Service in front of it, in the operator's own namespace, without a selector: whoever leads writes its EndpointSlice.
    service: str = "inference-operator-metrics-api"
    # The Secret with tls.crt, tls.key and ca.crt, in the operator's own namespace.
    secret: str = "inference-operator-custom-metrics"  # noqa: S105 -- a name
    # Whether the operator makes the certificate (True), or somebody else, say cert-manager, puts it into the Secret.
    issue: bool = True
    # A ClusterRole of the release: it owns the APIServices, so that they go when it goes. Empty: nobody owns them.
    owner: str = ""


class KedaScalerSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """KEDA's external scaler, served by the operator. The chart fills this in."""

    # Whether to serve it at all.
    enabled: bool = False
    # Port of the gRPC server.
    port: int = 6000
    # The Service in front of it, in the operator's own namespace: the name that its certificate has.
    service: str = "inference-operator-keda-scaler"
    # Whether it speaks TLS, by a certificate of the operator's authority; needs mutualTls.
    tls: bool = False
    # A file with the CAs that have signed KEDA's own certificate; empty asks KEDA for none.
    client_ca_file: str = ""


class MutualTls(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Certificates for workers from an authority of the operator's own, so that both know each other. The chart fills this in."""

    # Whether workers get certificates, and answer the operator by mutual TLS alone.
    enabled: bool = False
    # Port of the authority, which workers ask for certificates by HTTPS.
    port: int = 8444
    # The Service in front of it, in the operator's own namespace.
    service: str = "inference-operator-authority"
    # The operator's own namespace and ServiceAccount, of which its name in certificates consists.
    namespace: str = "inference-operator"
    # See there.
    account: str = "inference-operator"
    # The Secret with the authority's key, in the operator's own namespace; made when it is not there.
    secret: str = "inference-operator-authority"  # noqa: S105 -- a name
    # The first part of all names in certificates.
    trust_domain: str = "cluster.local"
    # How long a worker's certificate is good. Workers renew it after two thirds of that.
    certificate_seconds: _Positive = 86_400.0
    # How long the authority's key signs. The next one is trusted before it signs, and the last one as long as anything signed by it
    # is good.
    authority_seconds: _Positive = 31_536_000.0


class NodeCache(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A cache of models on each node, which its workers share. The chart fills this in."""

    # Whether workers are told of it.
    enabled: bool = False
    # The Service in front of the caches, which leads to that of the own node, and the operator's own namespace.
    service: str = "inference-operator-node-cache"
    # See there.
    namespace: str = "inference-operator"
    # By which the operator finds the pods of the caches in its namespace.
    pod_labels: dict[str, str] = msgspec.field(default_factory=dict)
    # The Secret with the key that tokens are made of, in the operator's own namespace. It has to be there; the operator fills an
    # empty one.
    key_name: _Name = "inference-operator-node-cache-key"
    # Whether nodes get the model of a roll-out before its workers start.
    prefetch: bool = False
    # For how long a worker waits for that at most.
    prefetch_seconds: _Positive = 300.0


class GatewayTracing(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Where the Envoys send traces."""

    # An OTLP/HTTP collector in plain text, for example http://collector.monitoring:4318; empty for no traces.
    endpoint: str = ""
    # Of requests without a traced caller, so many are traced all the same, in percent. Traced callers' requests always are.
    sampling_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0


class ParentGateway(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A Gateway of the Gateway API that routes are attached to."""

    # Its name.
    name: str
    # Its namespace. It has to allow routes from the jobs' namespaces.
    namespace: str
    # Its listener; empty for every listener that takes the routes.
    section_name: str = ""


class GatewayApi(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """HTTPRoutes and GRPCRoutes for services, where the Gateway API is installed. The chart fills this in."""

    # Whether to make them.
    enabled: bool = False
    # The Gateways that they are attached to: {name, namespace, sectionName}.
    parents: list[ParentGateway] = msgspec.field(default_factory=list)
    # Those for gRPC, where they are others: a listener takes routes of one kind for a host. Empty for the same.
    grpc_parents: list[ParentGateway] = msgspec.field(default_factory=list)
    # Hosts that lead to all namespaces, which paths or headers name; empty for any host.
    hostnames: list[str] = msgspec.field(default_factory=list)
    # With it, NAMESPACE.DOMAIN is a host that leads to one namespace.
    domain: str = ""
    # Seconds between two looks at what has become of the routes.
    seconds: _Positive = 15.0


class EndpointPicker(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The endpoint picker of the Gateway API Inference Extension. The chart fills this in."""

    # Whether to serve it, and, with api, to make an InferencePool for each model.
    enabled: bool = False
    # Port of the gRPC server that gateways ask.
    port: int = 9002
    # What a gateway does while no picker answers: FailClose tells its callers 503, FailOpen leads them to any worker of the model.
    failure_mode: Literal["FailClose", "FailOpen"] = "FailClose"
    # The Service of the picker in the operator's own namespace.
    service: str = ""
    # TLS by a certificate of the operator's authority, which needs mutualTls.
    tls: bool = False


class GatewaySettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The control plane of the Envoys in front of all services. The chart fills this in."""

    # Whether to serve it at all.
    enabled: bool = False
    # Port of the gRPC server that Envoys are told by.
    port: int = 18000
    # Port on which the Envoys listen, for HTTP and gRPC.
    listener_port: int = 8080
    # The longest gRPC request that is read ahead for the model's name; those with the metadata inference-model may be longer.
    request_bytes: int = 67_108_864
    # How many requests for models at zero wait at each replica of the operator, for how long, and how many bytes of them the Envoys
    # keep. What a gRPC request has that is read ahead comes on top.
    held_requests: int = 1000
    held_bytes: int = 268_435_456
    hold_seconds: float = 300.0
    # The folder in which the Envoys have tls.crt and tls.key. With it callers are served TLS alone, and reach jobs with serve.tls.
    tls_folder: str = ""
    # Where the Envoys send traces: {endpoint, samplingPercent}.
    tracing: GatewayTracing = GatewayTracing()
    # How many Envoys there are: each grants its part of a tenant's quota of requests.
    envoys: Annotated[int, msgspec.Meta(ge=1)] = 1
    # Who calls: {enabled, unknown, certificateFolder, keyFile, tokens, list}.
    tenants: Tenants = Tenants()
    # Whether each request is a line of the Envoys' standard output.
    audit: bool = False
    # Copies of requests and answers: {url, percent, maxBytes, namespaces}.
    payloads: Payloads = Payloads()
    # Routes for gateways of others: {enabled, parents, grpcParents, hostnames, domain, seconds}.
    api: GatewayApi = GatewayApi()
    # Who picks workers for gateways of others: {enabled, port, failureMode, service, tls}.
    endpoint_picker: EndpointPicker = EndpointPicker()


class KueueSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Batches in Kueue's queues."""

    # Whether jobs may have queueName, and the operator makes Workloads for them.
    enabled: bool = False


class TritonBackend(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The tritonserver that runs beside workers of `backend: triton`."""

    # Its image, with `tritonserver` on the PATH; empty for none.
    image: str = ""
    # What runs ONNX files in it: onnxruntime (NVIDIA's image), or python with ONNX Runtime installed beside it.
    platform: Literal["onnxruntime", "python"] = "onnxruntime"


class TorchScriptBackend(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Workers of `backend: torchscript`."""

    # A worker image built with requirements-torchscript.txt; empty for none.
    image: str = ""


class Backends(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Back ends beside ONNX Runtime, which every worker has."""

    triton: TritonBackend = TritonBackend()
    torchscript: TorchScriptBackend = TorchScriptBackend()


class Metering(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Reading NVIDIA's dcgm-exporter wherever one runs."""

    # Whether to look for exporters at all.
    enabled: bool = True
    # A pod with any of these labels is one: the GPU operator's, and those of the exporter's own chart.
    pod_labels: dict[str, str] = msgspec.field(
        default_factory=lambda: {"app": "nvidia-dcgm-exporter", "app.kubernetes.io/name": "dcgm-exporter"}
    )
    # Where to believe such labels; empty is in every namespace.
    namespaces: tuple[str, ...] = ("gpu-operator", "nvidia-gpu-operator")
    # Its port, of plain HTTP.
    port: int = 9400
    # Seconds between two questions.
    seconds: float = 10.0
    # The devices that it tells of, as nodes and pods count them.
    resource_name: str = "nvidia.com/gpu"


class WorkerSecurity(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Who worker pods run as. All else is Pod Security's level restricted, and no setting weakens it.

    An id that is null is left out of the pod: OpenShift fills in one of the namespace's range, others take the image's.
    """

    # Distroless's nonroot: any number works, one that volumes can be prepared for is kinder. Never 0.
    run_as_user: int | None = 65532
    # The group of their processes.
    run_as_group: int | None = 65532
    # The group that volumes are given to, where their kind allows it.
    fs_group: int | None = 65532
    # Further groups, for volumes that have an owner of their own.
    supplemental_groups: tuple[int, ...] = ()
    # Whether workers run in a user namespace (hostUsers: false): root in one is nobody on the node. Nodes whose container runtime
    # has none are not used then.
    user_namespaces: bool = False


class Fetching(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Where workers fetch models and inputs from, and where a job may have its traces sent."""

    # Hosts that the URLs of jobs and models may name, and their redirects lead to: names, *.SUFFIX or addresses. Empty allows every
    # host. Link-local addresses, loopback and metadata services stay forbidden, whatever stands here.
    allowed_hosts: tuple[str, ...] = ()
    # Where s3:// and hf:// lead unless a Secret says otherwise: URLs. Empty is AWS, and https://huggingface.co.
    s3_endpoint: str = ""
    s3_region: str = ""
    hub_endpoint: str = ""
    # The proxy that workers ask for TLS connections to stores and web servers, as http://HOST:PORT; empty for none. It resolves the
    # names, so that it has to keep workers from metadata services. A change rolls out all services.
    https_proxy: str = ""
    # Hosts that workers ask without it, as in allowedHosts.
    no_proxy: tuple[str, ...] = ()


class PolicySettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A learned policy that is asked beside each pass and has no say."""

    # An ONNX file as `bench/learned` writes them; empty for none.
    path: str = ""


class Settings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """All settings."""

    # The image of worker pods.
    worker_image: str = "localhost/inference-worker:latest"
    # When the kubelet pulls it.
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    # Secrets by which every worker pulls its images, beside those of its job; each has to be in the namespaces that have jobs.
    image_pull_secrets: tuple[str, ...] = ()
    # Back ends beside ONNX Runtime: {triton: {image, platform}, torchscript: {image}}.
    backends: Backends = Backends()
    # What each accelerator class means on this cluster, by its name.
    accelerators: dict[str, AcceleratorClass] = msgspec.field(default_factory=default_classes)
    # What jobs and models may add to their pods, beside the usual: {environment, labels, annotations, priorityClasses,
    # runtimeClasses, tolerations, secrets, images, serviceAccounts, ids, hostAliases}.
    pod_template: TemplateLimits = TemplateLimits()
    # Who worker pods run as: {runAsUser, runAsGroup, fsGroup, supplementalGroups, userNamespaces}; null leaves an id out. A change
    # rolls out all services.
    worker_security: WorkerSecurity = WorkerSecurity()
    # Where workers may fetch from, and where stores are: {allowedHosts, s3Endpoint, s3Region, hubEndpoint, httpsProxy, noProxy}. A
    # change rolls out the services that it is about.
    fetch: Fetching = Fetching()
    # Caps of each namespace, and the weight of its fair share: {default, overrides: {NAMESPACE}}, each of {maxPriority, maxDevices,
    # maxReplicas, maxPreemptionsPerHour, weight}.
    namespace_limits: NamespaceLimits = NamespaceLimits()
    # Who has to sign which models; of several entries about a model the first counts: [{namespaces, models, required, keys,
    # certificates, keyless, revoked}]. A change rolls out the services that it is about.
    model_signatures: tuple[SignatureRule, ...] = ()
    # How latency, energy and switching are weighed.
    cost: CostWeights = CostWeights()
    # Where workers send OpenTelemetry traces: {endpoint, ratio}.
    tracing: Tracing = Tracing()
    # Namespaces to watch; empty is all.
    namespaces: tuple[str, ...] = ()
    # Whether to read the pods of all namespaces where `namespaces` names some: they take room on the nodes, and meters are among
    # them.
    read_all_pods: bool = False
    # How often one job at most is asked to make room for others; after that it keeps its place.
    preemptions_per_job: Annotated[int, msgspec.Meta(ge=0)] = 3
    # Concurrent reconciles. They wait for the API server, so more than the cores is right.
    workers: _Count = 16
    # At most one scheduling pass in this time; a burst of events is decided together.
    scheduling_interval_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.05
    # A relist heals what a watch has lost: kopf reports no deletions that it missed.
    resync_seconds: _Positive = 300.0
    # How often running workers are asked how they stand; a round costs half a second of CPU for a thousand workers.
    telemetry_seconds: _Positive = 1.0
    # Meters of devices, where there are any: {enabled, podLabels, namespaces, port, seconds, resourceName}.
    metering: Metering = Metering()
    # A learned policy in shadow mode (ADR 0010), which needs an image with ONNX Runtime: {path}.
    policy: PolicySettings = PolicySettings()
    # Measuring load, and the HPAs.
    autoscaling: AutoscalingSettings = AutoscalingSettings()
    # The metrics API for the HPA.
    custom_metrics: CustomMetrics = CustomMetrics()
    # The scaler for KEDA: {enabled, port}.
    keda_scaler: KedaScalerSettings = KedaScalerSettings()
    # Mutual TLS between operator and workers: {enabled, port, service, namespace, account, secret, trustDomain,
    # certificateSeconds, authoritySeconds}.
    mutual_tls: MutualTls = MutualTls()
    # The cache of models on each node: {enabled, service, namespace, podLabels, keyName, prefetch, prefetchSeconds}.
    node_cache: NodeCache = NodeCache()
    # The control plane of the gateway: {enabled, port, listenerPort, requestBytes, heldRequests, heldBytes,
    # holdSeconds, tlsFolder, tracing: {endpoint, samplingPercent}, envoys, tenants, audit, payloads, api, endpointPicker}.
    gateway: GatewaySettings = GatewaySettings()
    # Batches in Kueue's queues: {enabled}.
    kueue: KueueSettings = KueueSettings()
    # Failed attempts wait this long, doubling, up to the limit.
    backoff_seconds: _Positive = 2.0
    # The longest of these waits.
    backoff_limit_seconds: _Positive = 120.0
    # API requests a second of the whole operator.
    requests_per_second: _Positive = 200.0
    # Requests that may come at once over that rate.
    burst: _Count = 400
    # Grace for a worker to drain after SIGTERM.
    termination_grace_seconds: Annotated[int, msgspec.Meta(ge=0)] = 30
    # A service whose workers are all on one node for this long gets one of them elsewhere, once another node has room. 0: never.
    spread_after_seconds: Annotated[float, msgspec.Meta(ge=0)] = 300.0
    # A pod that can't start (image, volume, network) is given up after this time: a failed attempt, or a worker that is replaced.
    start_timeout_seconds: _Positive = 600.0
    # A worker that hasn't loaded its model after this time is killed: a failed attempt. Counts in steps of five minutes. A change
    # rolls out all services.
    load_timeout_seconds: _Positive = 14400.0
    # Port of /healthz, /readyz and /metrics.
    http_port: _Port = 8080
    # The Lease that elects the leader, in the operator's own namespace.
    lease_name: _Name = "inference-operator"
    # For how long the Lease counts after a renewal, from 1: a dead leader is followed after so long. While the API server answers
    # slowly it is up to 15.
    lease_seconds: Annotated[int, msgspec.Meta(ge=1, le=15)] = 2
    # The Secret with the key that tasks are handed to warm workers by, in the operator's own namespace. It has to be there; the
    # operator fills an empty one.
    task_key_name: _Name = "inference-operator-task-key"
    # DEBUG, INFO, WARNING or ERROR.
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    # json for an object a line, text for people.
    log_format: LogFormat = "json"
    # Seconds to load a model, assumed while nothing is measured.
    assumed_load_seconds: _Positive = 3.0
    # Seconds for the whole work, assumed while nothing is measured.
    assumed_work_seconds: _Positive = 30.0


def load_settings(path: Path | None) -> Settings:
    """Read the file; the defaults without one. Raises ConfigurationError."""
    if path is None:
        return Settings()
    try:
        document = with_defaults(with_quantities(msgspec.yaml.decode(path.read_bytes())))
        if (fault := unreadable(document)) is not None:
            raise ConfigurationError(f"{path}: {fault}")
        settings = msgspec.convert(document, Settings)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    if settings.keda_scaler.tls and not settings.mutual_tls.enabled:
        raise ConfigurationError(f"{path}: kedaScaler.tls needs mutualTls.enabled, whose authority signs its certificate")
    if (collector := settings.tracing.endpoint) and not _is_collector(collector, "http", "https"):
        raise ConfigurationError(f"{path}: tracing.endpoint: {collector!r} is not http://HOST:PORT or https://HOST:PORT")
    if (collector := settings.gateway.tracing.endpoint) and (why := collector_fault(collector)) is not None:
        raise ConfigurationError(f"{path}: gateway.tracing.endpoint: {why}")
    if settings.gateway.endpoint_picker.tls and not settings.mutual_tls.enabled:
        raise ConfigurationError(
            f"{path}: gateway.endpointPicker.tls needs mutualTls.enabled, whose authority signs its certificate"
        )
    stores = {"s3Endpoint": settings.fetch.s3_endpoint, "hubEndpoint": settings.fetch.hub_endpoint}
    hosts = (entry_fault(entry) for entry in settings.fetch.allowed_hosts)
    found = (
        fault_of(settings.accelerators),
        limits_fault(settings.pod_template),
        security_fault(settings.worker_security),
        namespace_fault(settings.namespace_limits, settings.accelerators),
        signatures_fault(settings.model_signatures),
        payloads_fault(settings.gateway.payloads),
        tenants_fault(settings.gateway.tenants, tls=bool(settings.gateway.tls_folder)),
        *(h and f"fetch.allowedHosts: {h}" for h in hosts),
        *(h and f"fetch.noProxy: {h}" for h in map(entry_fault, settings.fetch.no_proxy)),
        (proxy := settings.fetch.https_proxy) and (why := proxy_fault(proxy)) and f"fetch.httpsProxy: {why}",
        *(url and (why := endpoint_fault(url)) and f"fetch.{name}: {why}" for name, url in stores.items()),
    )
    if (fault := next(filter(None, found), None)) is not None:
        raise ConfigurationError(f"{path}: {fault}")
    return settings


def collector_fault(url: str) -> str | None:
    """What is wrong with the address of the Envoys' collector, with the cure; None where it can be used."""
    if _is_collector(url, "http"):
        return None
    return f"{url!r} is not http://HOST:PORT: for TLS, name a collector near the Envoys that speaks it to others"


def _is_collector(url: str, *schemes: str) -> bool:
    try:
        place = urlsplit(url)
        usable = place.scheme in schemes and place.hostname and (place.port is None or place.port > 0)
    except ValueError:
        return False
    return bool(usable) and not (place.username or place.query or place.fragment)


def security_fault(security: WorkerSecurity) -> str | None:
    """What is wrong with an id, with its place and the cure; None where all can be used."""
    groups = (security.run_as_group, security.fs_group, *security.supplemental_groups)
    if security.run_as_user == 0:
        return "workerSecurity.runAsUser is 0, but workers never run as root: name another user, or null for the image's"
    ids = [one for one in (security.run_as_user, *groups) if one is not None]
    if any(one < 0 for one in ids):
        return "workerSecurity: an id is negative: name another, or null for none"
    if security.user_namespaces and any(one > _LARGEST_MAPPED_ID for one in ids):
        return (
            f"workerSecurity: a user namespace has no ids above {_LARGEST_MAPPED_ID}: name smaller ones, or userNamespaces: false"
        )
    return None
