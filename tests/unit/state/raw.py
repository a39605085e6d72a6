"""Objects as the API server gives them, for tests of what reads them."""

from typing import Any

from inference_operator.api import names

Raw = dict[str, Any]


def meta(name: str = "thing", **more: Any) -> Raw:
    return {"name": name, "namespace": "default", "uid": f"uid-of-{name}", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-04-02T11:59:50Z"} | more  # fmt: skip


def raw_job(spec: object = None, status: object = None, **metadata: Any) -> Raw:
    return {"metadata": meta("job", **metadata), "spec": spec, "status": status}


def container(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **more: Any) -> Raw:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return {"name": "c", "resources": resources, **more}


def raw_pod(*containers: Raw, status: Raw | None = None, spec: Raw | None = None, **metadata: Any) -> Raw:
    return {"metadata": meta("pod", **metadata), "spec": {"containers": list(containers), **(spec or {})}, "status": status or {}}


def raw_worker(state: Raw | None = None, *, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None,
               **status: Any) -> Raw:  # fmt: skip
    ours = {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_JOB_UID: "uid-of-job",
        names.LABEL_ATTEMPT: "2",
        names.LABEL_REVISION: "r1",
        names.LABEL_ACCELERATOR: "gpu",
    }
    statuses = [{"name": "sidecar", "state": {"running": {}}}, {"name": names.CONTAINER, "state": state or {}}]
    return raw_pod(
        container({"cpu": "1"}),
        labels={**ours, **(labels or {})},
        ownerReferences=[
            {
                "apiVersion": "inference.myorg/v1",
                "kind": "InferenceJob",
                "uid": (labels or {}).get(names.LABEL_JOB_UID, "uid-of-job"),
                "controller": True,
            }
        ],
        annotations=annotations or {},
        status={"containerStatuses": statuses, **status},
    )
