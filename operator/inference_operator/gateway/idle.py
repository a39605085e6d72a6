"""Who has requests, as far as workers tell: what a service's sleep depends on."""

from collections.abc import Mapping

from inference_protocol.messages import Telemetry


class Activity:
    """What each worker had counted, by its pod's uid."""

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}

    def busy(self, told: Mapping[str, Telemetry | None]) -> set[str]:
        """Workers that have had requests since the last round, or may have had: one that is new, and one that doesn't answer."""
        busy = {uid for uid, answer in told.items() if answer is None or self._has_requests(uid, answer)}
        self._counted = {uid: answer.requests_total if answer is not None else -1 for uid, answer in told.items()}
        return busy

    def _has_requests(self, uid: str, answer: Telemetry) -> bool:
        return bool(answer.in_flight or answer.queued) or self._counted.get(uid) != answer.requests_total
