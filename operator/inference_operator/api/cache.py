"""What a serving job's workers may keep of their answers, to give them again."""

from typing import Annotated

from pydantic import Field

from inference_operator.api.schema import Rule, api_type

# A lower bound keeps the entries' own cost small beside what they hold.
_LEAST_BYTES, _MOST_BYTES = 1 << 20, 1 << 40
_MOST_SECONDS = 30 * 86_400


@api_type()
class FrameReuse:
    """When the answer to a stream's frame is used again for later ones."""

    similarity: Annotated[
        float,
        Field(
            ge=0.5,
            le=1,
            description="Least structural similarity (SSIM) to the frame that the answer was computed from; below it, a frame is "
            "computed anew.",
        ),
    ] = 0.95
    max_streams: Annotated[int, Field(ge=1, le=10_000, description="Streams that each worker keeps a frame of.")] = 64
    max_bytes: Annotated[
        int, Field(ge=_LEAST_BYTES, le=_MOST_BYTES, description="Memory of each worker for frames and their answers.")
    ] = 64 << 20
    max_age_seconds: Annotated[
        int, Field(ge=1, le=_MOST_SECONDS, description="After so long, a frame is computed anew though the scene is still.")
    ] = 10


@api_type(
    Rule(
        "!has(self.frames) || self.frames.maxAgeSeconds <= self.maxAgeSeconds",
        "frames.maxAgeSeconds must not be above cache.maxAgeSeconds: lower it, or raise the other",
    ),
)
class AnswerCache:
    """What each worker keeps. Requests with a sequence_id, and models that answer the same differently, go past it."""

    max_bytes: Annotated[
        int,
        Field(
            ge=_LEAST_BYTES,
            le=_MOST_BYTES,
            description="Memory of each worker for answers to the same bytes; it comes on top of what the model needs.",
        ),
    ] = 64 << 20
    max_age_seconds: Annotated[int, Field(ge=1, le=_MOST_SECONDS, description="How old an answer may be that is given again.")] = 60
    frames: Annotated[
        FrameReuse | None,
        Field(description="Uses answers again for like frames of one stream (stream_id); {} is enough. Without it, bytes decide."),
    ] = None
