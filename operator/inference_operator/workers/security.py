"""The security contexts of worker pods: Pod Security's level restricted, with the ids that the settings name, or none."""

from typing import Any

from inference_operator.settings import Settings, WorkerSecurity

Manifest = dict[str, Any]


def pod_security(settings: Settings, asked: Manifest) -> Manifest:
    """Return the pod's context, with the ids that its template asks for. One that is None is left out, for others to fill in."""
    chosen = settings.worker_security
    ids = {"runAsUser": chosen.run_as_user, "runAsGroup": chosen.run_as_group, "fsGroup": chosen.fs_group}
    context: Manifest = {
        "runAsNonRoot": True,
        **{name: value for name, value in ids.items() if value is not None},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if chosen.fs_group is not None:
        # Without it the kubelet walks through each volume at each start.
        context["fsGroupChangePolicy"] = "OnRootMismatch"
    if chosen.supplemental_groups:
        context["supplementalGroups"] = list(chosen.supplemental_groups)
    return {**context, **asked}


def host_users(security: WorkerSecurity) -> Manifest:
    """Return what asks for a user namespace, where the settings do: fields of the pod's spec."""
    return {"hostUsers": False} if security.user_namespaces else {}


def container_security() -> Manifest:
    """Return the context of each container; no setting weakens it."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
