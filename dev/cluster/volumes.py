"""Dynamic provisioning for StorageClass `shared`: a claim becomes a folder of the machine.

Both nodes share one file system, so a hostPath volume is visible from either. Folders are open to
every user because pods run as uid 65532 and hostPath volumes get no fsGroup.
"""

import shutil
from http import HTTPStatus
from pathlib import Path

from dev.cluster.addons import PROVISIONER, STORAGE_CLASS
from dev.cluster.api import Api, ApiError, Json
from dev.console import say

_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"


def reconcile_volumes(api: Api, root: Path) -> None:
    """Make the missing volumes, remove the released ones."""
    volumes = api.get(VOLUMES)["items"]
    claims = api.get(CLAIMS)["items"]
    names = {volume["metadata"]["name"] for volume in volumes}
    for claim in claims:
        if _wants_volume(claim) and _volume_name(claim) not in names:
            _provision(api, root, claim)
    living = {claim["metadata"]["uid"] for claim in claims}
    for volume in volumes:
        if _is_abandoned(volume, living):
            _remove(api, root, volume)


def _wants_volume(claim: Json) -> bool:
    spec = claim["spec"]
    unbound = not spec.get("volumeName") and "deletionTimestamp" not in claim["metadata"]
    return unbound and spec.get("storageClassName") == STORAGE_CLASS


def _is_abandoned(volume: Json, living: set[str]) -> bool:
    if volume["metadata"].get("annotations", {}).get(_PROVISIONED_BY) != PROVISIONER:
        return False
    if volume["spec"].get("persistentVolumeReclaimPolicy") != "Delete":
        return False
    return volume["spec"]["claimRef"]["uid"] not in living


def _volume_name(claim: Json) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def _provision(api: Api, root: Path, claim: Json) -> None:
    metadata = claim["metadata"]
    folder = root / f"{metadata['namespace']}-{metadata['name']}-{metadata['uid']}"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": _volume_name(claim), "annotations": {_PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "storageClassName": STORAGE_CLASS,
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "accessModes": claim["spec"]["accessModes"],
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                **{key: metadata[key] for key in ("namespace", "name", "uid")},
            },
        },
    }
    try:
        api.create(VOLUMES, body)
    except ApiError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
    say(f"provisioned {folder}")


def _remove(api: Api, root: Path, volume: Json) -> None:
    folder = Path(volume["spec"]["hostPath"]["path"])
    # The object could have been edited: only a folder directly below our root is ever deleted.
    if folder.parent == root:
        shutil.rmtree(folder, ignore_errors=True)
    api.delete(f"{VOLUMES}/{volume['metadata']['name']}")
    say(f"removed {folder}")
