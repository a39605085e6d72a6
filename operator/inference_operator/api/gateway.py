"""How the gateway leads callers to a serving job. Without the gateway none of it has an effect."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from inference_operator.api.schema import api_type


class TrafficDistribution(StrEnum):
    """Which workers an Envoy asks first."""

    PREFER_SAME_ZONE = "PreferSameZone"


@api_type()
class ServeGateway:
    """What the gateway does with requests for this version of the model. Of several jobs on one version, the first by name says."""

    traffic_percent: Annotated[
        int | None,
        Field(
            ge=0,
            le=100,
            description="Share of the requests that name no version which this version gets once a worker is ready (a canary); the "
            "model's default version gets the rest.",
        ),
    ] = None
    mirror_percent: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="Share of the requests that name no version of which this version gets a copy; nobody sees its answers.",
        ),
    ] = 0
    idle_seconds: Annotated[
        int | None,
        Field(
            ge=1,
            le=604_800,
            description="Lets all workers go after so long without a request; the next through the gateway waits for a new one. "
            "It needs minReplicas 0. Without it, workers stay.",
        ),
    ] = None
    max_parallel_requests: Annotated[
        int | None,
        Field(
            ge=1,
            le=100_000,
            description="Requests that one Envoy has under way here at most, for each protocol; more get 429 with Retry-After. "
            "Without it, the workers alone say when they are full.",
        ),
    ] = None
    affinity_header: Annotated[
        str | None,
        Field(
            pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            min_length=1,
            max_length=63,
            description="A header or metadata key, for example session-id. Requests with one value go to one worker, unless it has "
            "half as many again as the others.",
        ),
    ] = None
    traffic_distribution: Annotated[
        TrafficDistribution | None,
        Field(description="PreferSameZone keeps requests in the Envoy's zone while most of the workers there are healthy."),
    ] = None
