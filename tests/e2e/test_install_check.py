"""`helm test` on the real cluster: a job of the model that every worker's image has, and a pod with a sidecar beside its worker."""

import json
import subprocess

from dev.tools import bin_folder, ensure
from examples.demo.cluster import RELEASE, SYSTEM, Kubectl, build_images, install
from tests.e2e.conftest import Space


def test_helm_test_runs_a_job(kube: Kubectl) -> None:
    ensure("helm")
    helm = [str(bin_folder("helm") / "helm"), "--kubeconfig", str(kube.kubeconfig), "-n", SYSTEM]

    done = subprocess.run([*helm, "test", RELEASE, "--timeout", "120s"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Succeeded" in done.stdout


def test_init_containers_and_sidecars_run_beside_a_batch_that_ends(kube: Kubectl, space: Space) -> None:
    """They are of the worker's own image here, the only one on the nodes that has a program to run."""
    image = build_images()["worker"]
    install(kube, build_images(), settings=(f"settings.podTemplate.images={{{image}}}",))
    write = "open('/scratch/ready', 'w').write('yes')"
    wait = "import time; assert open('/scratch/ready').read() == 'yes'; time.sleep(3600)"
    mounts = [{"name": "work", "mountPath": "/scratch"}]
    template = {
        "volumes": [{"name": "work", "emptyDir": {"sizeLimit": "1Mi"}}],
        "volumeMounts": [{"name": "work", "mountPath": "/mnt/extra/work"}],
        "initContainers": [{"name": "first", "image": image, "command": ["python3", "-c", write], "volumeMounts": mounts}],
        "sidecars": [{"name": "beside", "image": image, "command": ["python3", "-c", f"{write}; {wait}"], "volumeMounts": mounts}],
    }
    spec = {
        "model": "file:///opt/app/inference_worker/example/increment.onnx",
        "accelerator": "cpu",
        "input": {"data": '{"x": [1, 2, 3]}'},
        "template": template,
    }
    space.kube.apply({"apiVersion": "inference.myorg/v1", "kind": "InferenceJob", "metadata": {"name": "with-more"}, "spec": spec})

    status = space.kube.wait("with-more", "Succeeded", seconds=120)["status"]

    assert json.loads(status["output"]["data"]) == {"y": [2.0, 3.0, 4.0]}
