"""What is kept of each worker that is polled."""

from inference_operator.liveness.detector import Verdict
from inference_operator.state.objects import Pod


class Polled:
    """A worker that is polled. Times are listening seconds; `asked` is when the first question that still waits was put."""

    __slots__ = ("answered", "answers", "asked", "begun", "pod", "refusals", "renewed", "spoke", "verdict")

    def __init__(self, pod: Pod, begun: float) -> None:
        self.pod = pod
        self.begun = begun
        self.asked: float | None = None
        self.renewed = 0.0
        self.refusals = 0
        self.answers = 0
        # Silence tells nothing of one who never spoke, unless others like it do: a policy may keep the operator from workers that
        # all others reach. Policies select pods by their labels, which are alike for a job's workers of one revision.
        self.answered = False
        # When it last answered in time.
        self.spoke = 0.0
        self.verdict = Verdict()
