"""What kstatus says of a custom object: our own words for its documented rules, in their order.

Flux, `helm --wait` of Helm 4 and kpt go by it. Sources, all in kubernetes-sigs/cli-utils: pkg/kstatus/README.md has the rules;
pkg/kstatus/status/generic.go the order of deletion, generation, Reconciling and Stalled; pkg/kstatus/status/core.go what Ready says.
"""

from collections.abc import Mapping
from typing import Any

Raw = Mapping[str, Any]


def kstatus(raw: Raw) -> str:
    """Return Terminating, InProgress, Failed or Current."""
    meta, status = raw["metadata"], raw.get("status") or {}
    if meta.get("deletionTimestamp"):
        return "Terminating"
    # A status without the field passes this check.
    if "observedGeneration" in status and status["observedGeneration"] != meta["generation"]:
        return "InProgress"
    conditions = status.get("conditions", ())
    for one in conditions:
        if (one["type"], one["status"]) == ("Reconciling", "True"):
            return "InProgress"
        if (one["type"], one["status"]) == ("Stalled", "True"):
            return "Failed"
    # An object without any of the known conditions is taken for current.
    return next(("Current" if one["status"] == "True" else "InProgress" for one in conditions if one["type"] == "Ready"), "Current")
