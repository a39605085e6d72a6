"""The API server's part, as far as the metrics API asks it: objects by path, versions, reviews."""

import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

from inference_operator.errors import ConflictError, NotFoundError, RetryableError

Raw = dict[str, Any]


class FakeKube:
    """See ClaimingClient. `reviews` answer creations in collections that keep nothing; `down` fails every request."""

    def __init__(self) -> None:
        self.objects: dict[str, Raw] = {}
        self.reviews: dict[str, Callable[[Raw], Raw]] = {}
        self.asked: list[tuple[str, str, Raw]] = []
        self.before: dict[str, Callable[[], None]] = {}
        self.down = False
        self._version = 0

    async def get(self, path: str) -> Raw:
        self._note("get", path, {})
        if path not in self.objects:
            raise NotFoundError(path)
        return copy.deepcopy(self.objects[path])

    async def list_pages(self, path: str, *, selector: str = "") -> AsyncIterator[list[Raw]]:
        del path, selector
        yield []

    async def create(self, path: str, body: Raw) -> Raw:
        self._note("create", path, body)
        if path in self.reviews:
            return {**body, "status": self.reviews[path](body["spec"])}
        place = f"{path}/{body['metadata']['name']}"
        if place in self.objects:
            raise ConflictError(place)
        return self._put(place, body)

    async def apply(self, path: str, body: Raw) -> Raw:
        self._note("apply", path, body)
        return self._put(path, body)

    async def claim(self, path: str, body: Raw) -> Raw:
        self._note("claim", path, body)
        if path in self.objects:
            raise ConflictError(path)
        return self._put(path, body)

    async def merge(self, path: str, body: Raw) -> Raw:
        raise NotImplementedError

    async def replace(self, path: str, body: Raw) -> Raw:
        self._note("replace", path, body)
        if path not in self.objects:
            raise NotFoundError(path)
        if body["metadata"].get("resourceVersion") != self.objects[path]["metadata"]["resourceVersion"]:
            raise ConflictError(path)
        return self._put(path, body)

    async def delete(self, path: str, *, uid: str) -> None:
        self._note("delete", path, {})
        if self.objects.get(path, {}).get("metadata", {}).get("uid") == uid:
            del self.objects[path]

    def did(self, *verbs: str) -> list[str]:
        """Paths of requests by verb."""
        return [path for verb, path, _ in self.asked if verb in verbs]

    def put(self, path: str, body: Raw) -> Raw:
        """As somebody else would write it."""
        return self._put(path, body)

    def _put(self, path: str, body: Raw) -> Raw:
        self._version += 1
        old = self.objects.get(path, {})
        uid = old.get("metadata", {}).get("uid", f"uid-{self._version}")
        status = {"status": old["status"]} if "status" in old and "status" not in body else {}
        metadata = {**body["metadata"], "uid": uid, "resourceVersion": str(self._version)}
        self.objects[path] = {**copy.deepcopy(body), **status, "metadata": metadata}
        return copy.deepcopy(self.objects[path])

    def _note(self, verb: str, path: str, body: Raw) -> None:
        self.asked.append((verb, path, body))
        if (hook := self.before.pop(f"{verb} {path}", None)) is not None:
            hook()
        if self.down:
            raise RetryableError("the API server is away")
