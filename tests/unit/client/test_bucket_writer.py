"""What `push` writes to a bucket that refuses, lies, is written to by others, or breaks off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from inference_client.errors import ClientError, ForbiddenError, InvalidError
from kubectl_inference.bucket_writer import push

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

URI = "s3://models/model.onnx"
KEY = "models/model.onnx"


class Upload(AbstractBufferedFile):
    """An object that gets its name when it is closed, as those of S3 do."""

    def _upload_chunk(self, final: bool = False) -> bool:  # noqa: FBT001, FBT002 -- fsspec's own form
        if final:
            self.fs.end(self.path, self.mode, self.buffer.getvalue())
        return not final

    def discard(self) -> None:
        self.fs.discarded.append(self.path)


class Store(AbstractFileSystem):
    """Objects in memory; `refuse` raises for whoever asks about one, `meanwhile` runs between that and the write."""

    cachable = False

    def __init__(self, *, knows_conditions: bool = True, refuse: Exception | None = None) -> None:
        super().__init__()
        self.objects: dict[str, bytes] = {}
        self.discarded: list[str] = []
        self.knows_conditions = knows_conditions
        self.refuse = refuse
        self.meanwhile: Callable[[], Any] = lambda: None

    def info(self, path: str, **_: object) -> dict[str, Any]:
        if self.refuse is not None:
            raise self.refuse
        if path not in self.objects:
            raise FileNotFoundError(path)
        return {"name": path, "size": len(self.objects[path]), "type": "file"}

    def _open(self, path: str, mode: str = "rb", **_: object) -> Upload:
        if mode == "xb" and not self.knows_conditions:
            raise NotImplementedError("File mode not supported")
        return Upload(self, path, mode)

    def end(self, path: str, mode: str, data: bytes) -> None:
        """The end of an upload."""
        self.meanwhile()
        if mode == "xb" and path in self.objects:
            raise FileExistsError(path)
        self.objects[path] = data


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"a model")
    return path


def pushed(store: Store, source: Path, monkeypatch: pytest.MonkeyPatch, *, force: bool = False) -> list[str]:
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda uri: (store, uri.removeprefix("s3://")))
    return push([source], URI, force=force, sent=lambda _: None)


@pytest.mark.parametrize("knows", [True, False])
def test_a_free_name_is_written_to(source: Path, knows: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    store = Store(knows_conditions=knows)

    assert pushed(store, source, monkeypatch) == [URI] and store.objects == {KEY: b"a model"}
    with pytest.raises(InvalidError, match="is there already"):
        pushed(store, source, monkeypatch)
    store.objects[KEY] = b"another"
    pushed(store, source, monkeypatch, force=True)
    assert store.objects == {KEY: b"a model"}


def test_a_store_that_does_not_tell_is_not_taken_for_an_empty_one(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 says 403 of a name to whoever may not list the bucket, also where there is an object."""
    store = Store(refuse=PermissionError("Access Denied"), knows_conditions=False)
    store.objects[KEY] = b"somebody else's"
    assert not store.exists(KEY), "what fsspec makes of it"

    with pytest.raises(ForbiddenError, match=r"doesn't tell whether s3://models/model.onnx is there: Access Denied.*s3:ListBucket"):
        pushed(store, source, monkeypatch)
    assert store.objects == {KEY: b"somebody else's"}
    pushed(store, source, monkeypatch, force=True)
    assert store.objects == {KEY: b"a model"}


@pytest.mark.parametrize("error", [OSError("500"), RuntimeError("no region"), ConnectionError("reset"), TimeoutError()])
def test_a_store_that_fails_is_not_taken_for_an_empty_one(source: Path, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(refuse=error)

    with pytest.raises(ClientError, match=rf"s3://models/model\.onnx: {type(error).__name__}"):
        pushed(store, source, monkeypatch)
    assert store.objects == {}


def test_of_two_who_push_at_once_the_store_takes_the_first(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    store.meanwhile = lambda: store.objects.setdefault(KEY, b"somebody else's")

    with pytest.raises(InvalidError, match="is there already"):
        pushed(store, source, monkeypatch)
    assert store.objects == {KEY: b"somebody else's"}


def test_what_is_not_written_whole_gets_no_name(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()

    def broken(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda uri: (store, uri.removeprefix("s3://")))
    with pytest.raises(KeyboardInterrupt):
        push([source], URI, force=True, sent=broken)
    assert store.objects == {} and store.discarded == [KEY]


def test_a_store_that_takes_no_writes_says_so(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()

    def refuse() -> None:
        raise PermissionError("Access Denied")

    store.meanwhile = refuse
    with pytest.raises(ForbiddenError, match=r"the store refuses to write s3://models/model\.onnx: Access Denied"):
        pushed(store, source, monkeypatch)
    assert store.objects == {}
