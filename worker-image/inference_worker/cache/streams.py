"""Answers to frames of streams, used again while the scene is the same.

A frame is compared with the one that the kept answer was *computed from*, not with the last one, so a scene that changes slowly
does not drift away from its answer.
"""

from itertools import count

import msgspec

from inference_protocol.messages import FrameReuse
from inference_worker.cache.counts import Occupied
from inference_worker.cache.keys import Asked, Key, key_of
from inference_worker.cache.known import Known
from inference_worker.cache.lru import Bounds, Lru
from inference_worker.cache.similarity import Frame, measured, planes_of, similarity
from inference_worker.engines.engine import Tensor, Tensors


class Image(msgspec.Struct, frozen=True):
    """The one image among a request's inputs, and what else it has."""

    array: Tensor
    planes: Tensor
    name: str
    others: Tensors


class Scene(msgspec.Struct, frozen=True):
    """A frame with the answer that was computed from it. `number` tells which of two frames came later."""

    frame: Frame
    known: Known
    number: int


class Look(msgspec.Struct, frozen=True):
    """What a frame was found to be: its stream's key, its number, and a scene that is like it, with what likeness and age."""

    key: Key
    number: int
    scene: Scene | None = None
    likeness: float = 0.0
    age: float = 0.0


def image_of(feeds: Tensors) -> Image | None:
    """A request's image; None where it has none, or several."""
    found = [(name, planes) for name, array in feeds.items() if (planes := planes_of(array)) is not None]
    if len(found) != 1:
        return None
    ((name, planes),) = found
    return Image(feeds[name], planes, name, {other: array for other, array in feeds.items() if other != name})


class Streams:
    """The last computed frame of each stream, bounded in number, bytes and age."""

    def __init__(self, told: FrameReuse) -> None:
        self._enough = told.similarity
        self._kept: Lru[Key, Scene] = Lru(Bounds(told.max_bytes, told.max_age_seconds, told.max_streams))
        self._numbers = count()

    @property
    def occupied(self) -> Occupied:
        """What it takes."""
        kept = self._kept
        return Occupied(kept.size, len(kept), kept.outgrown, kept.expired)

    def look(self, wanted: Asked, stream: str, image: Image, now: float) -> Look:
        """Compare a frame with its stream's; changes nothing, so that threads may do it."""
        kind = (stream, image.name, str(image.array.dtype), str(image.array.shape))
        key, number = key_of(wanted, image.others, "frame", *kind), next(self._numbers)
        kept = self._kept.peek(key, now)
        if kept is None:
            return Look(key, number)
        likeness = similarity(kept.value.frame, image.planes, self._enough)
        if not likeness >= self._enough:
            return Look(key, number)
        return Look(key, number, kept.value, likeness, now - kept.since)

    def used(self, look: Look, now: float) -> None:
        """Count a stream as used."""
        self._kept.get(look.key, now)

    def put(self, look: Look, scene: Scene, now: float) -> None:
        """Keep a frame and its answer as its stream's, unless a later frame is kept already."""
        newest = self._kept.peek(look.key, now)
        if newest is None or newest.value.number < look.number:
            self._kept.put(look.key, scene, _size(scene), now)


def scene_of(look: Look, image: Image, known: Known) -> Scene | None:
    """A computed frame ready to be compared with; None for one that nothing is like. Takes long: threads do it."""
    frame = measured(image.planes)
    return Scene(frame, known, look.number) if frame is not None else None


_PLANE_BYTES = 1024


def _size(scene: Scene) -> int:
    return _PLANE_BYTES * (1 + len(scene.frame.planes)) + scene.frame.nbytes + scene.known.size
