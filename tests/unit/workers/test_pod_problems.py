"""What keeps a pod from running is told with what to mend: the values that name its image are those of its class."""

from dataclasses import replace

import pytest

from inference_operator.api.conditions import Reason
from inference_operator.state.objects import PodPhase, PodProblem
from inference_operator.workers.pod_problems import out_of_reach, problem_of
from inference_operator.workers.triton import CONTAINER
from tests.builders import a_job, a_pod, observed

NO_IMAGE = PodProblem("ErrImagePull", "not found")


@pytest.mark.parametrize("accelerator", ["cpu", "mig-1g"])
def test_an_image_that_is_missing_is_looked_for_where_the_class_names_it(accelerator: str) -> None:
    """All were sent to worker.image, which a class with an image of its own doesn't use."""
    found = problem_of(a_pod(a_job(), phase=PodPhase.PENDING, accelerator=accelerator, problem=NO_IMAGE))

    assert found is not None and found[0] is Reason.IMAGE_UNAVAILABLE
    assert f"not found; check accelerators.{accelerator}.image, or worker.image where the class has none" in found[1]


def test_a_missing_image_is_told_in_the_same_words_between_two_pulls_and_with_its_node() -> None:
    """The kubelet changes its words every few seconds, for hours, and each change was a write of the status."""
    said = 'failed to pull and unpack image "w:1": not found'
    pause = PodProblem("ImagePullBackOff", f'Back-off pulling image "w:1": ErrImagePull: {said}')
    pulls = PodProblem("ErrImagePull", said)
    told = [problem_of(a_pod(a_job(), node="gpu-7", phase=PodPhase.PENDING, problem=one)) for one in (pulls, pause)]

    assert told[0] == told[1] and told[0] is not None and f"on node gpu-7: {said}; check" in told[0][1]


def test_a_batch_on_a_node_that_takes_no_more_work_is_not_said_to_move_before_it_is_drained() -> None:
    words = []
    for job in (a_job(serve=True), a_job()):
        pod = a_pod(job, node="cpu-1")
        words.append(out_of_reach(replace(observed(job, pod), moving=frozenset({pod.uid}))))

    assert "so its workers move where there is room" in words[0] and "goes on elsewhere once it is drained" in words[1]


def test_tritons_image_is_looked_for_at_its_back_end() -> None:
    found = problem_of(a_pod(a_job(), phase=PodPhase.PENDING, problem=replace(NO_IMAGE, container=CONTAINER)))

    assert found is not None and found[0] is Reason.IMAGE_UNAVAILABLE
    assert "tritonserver's image" in found[1] and "backends.triton.image" in found[1] and "worker.image" not in found[1]


@pytest.mark.parametrize(
    ("problem", "reason", "words"),
    [
        (NO_IMAGE, Reason.IMAGE_UNAVAILABLE, "the image of the template's container proxy can't be had: not found; correct it"),
        (PodProblem("Error", "exit code 3"), Reason.PENDING, "container proxy keeps the worker from starting: Error: exit code 3"),
    ],
)
def test_a_container_of_a_template_is_named_as_its_author_wrote_it(problem: PodProblem, reason: Reason, words: str) -> None:
    found = problem_of(a_pod(a_job(), phase=PodPhase.PENDING, problem=replace(problem, container="extra-proxy")))

    assert found is not None and found[0] is reason and words in found[1]
