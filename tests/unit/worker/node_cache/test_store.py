"""Models on disk: what has a name is whole, whatever ends the process; and one copy serves all who brought the bytes."""

from __future__ import annotations

import hashlib
import os
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from inference_protocol.node_cache import HEAD_BYTES
from inference_worker.node_cache.faults import NotTakenError
from inference_worker.node_cache.store import ModelStore

if TYPE_CHECKING:
    from pathlib import Path

DATA = b"model" * 100
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


class Killed(BaseException):
    """The process ends here."""


def a_store(root: Path, *, limit: int = 1 << 20, shared: bool = False) -> ModelStore:
    return ModelStore(root, limit=limit, shared=shared, now=iter(range(1000)).__next__)


def bring(store: ModelStore, namespace: str, data: bytes = DATA, name: str = "m") -> str:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    with store.incoming(namespace, digest) as incoming:
        incoming.begin(name)
        incoming.write(data)
        incoming.verify()
        incoming.commit()
    return digest


def test_namespaces_share_an_inode_and_each_gives_up_its_own_name(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    for namespace in ("a", "b"):
        bring(store, namespace)
    paths = [tmp_path / namespace / DIGEST[7:] for namespace in ("a", "b")]

    assert len({path.stat().st_ino for path in paths}) == 1 == store.models
    assert store.used == HEAD_BYTES + len(DATA)


def test_the_same_bytes_under_another_name_are_a_file_of_their_own(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    bring(store, "a")
    bring(store, "b", name="other")

    assert store.models == 2


@pytest.mark.parametrize("moment", ["fsync", "rename", "link"])
def test_whatever_moment_the_process_ends_at_a_name_means_whole_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    store = a_store(tmp_path)
    if moment == "link":
        bring(store, "other")

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.unlink", lambda *_, **__: None)
        patched.setattr("pathlib.Path.rename" if moment == "rename" else f"os.{moment}", killed)
        with pytest.raises(Killed):
            bring(store, "a")
    after = a_store(tmp_path)

    assert after.open("a", DIGEST) is None
    assert (after.open("other", DIGEST) is not None) == (moment == "link")
    assert not list((tmp_path / ".incoming").iterdir())
    bring(after, "a")
    found = after.open("a", DIGEST)
    assert found is not None and found.read()[HEAD_BYTES:] == DATA
    found.close()


def test_the_order_of_use_and_a_lower_limit_outlive_the_process(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    digests = [bring(store, "a", os.urandom(1000)) for _ in range(3)]
    for used, digest in enumerate((digests[1], digests[2], digests[0])):
        os.utime(tmp_path / "a" / digest[7:], (used, used))
    after = a_store(tmp_path, limit=2 * (HEAD_BYTES + 1000))

    assert [after.has("a", digest) for digest in digests] == [True, False, True]


def test_what_was_brought_apart_is_not_shared_afterwards(tmp_path: Path) -> None:
    bring(a_store(tmp_path), "a")
    shared = a_store(tmp_path, shared=True)
    assert not shared.has("b", DIGEST)
    bring(shared, "b")
    assert shared.has("a", DIGEST)

    assert not a_store(tmp_path).has("b", DIGEST)


def test_a_model_that_gives_way_ends_early_for_who_reads_it(tmp_path: Path) -> None:
    """Its worker hashes what it has got, and fetches the model itself."""
    store = a_store(tmp_path, limit=HEAD_BYTES + 2000)
    bring(store, "a")
    reading = store.open("a", DIGEST)
    bring(store, "a", os.urandom(1900))

    assert reading is not None and not store.has("a", DIGEST)
    assert reading.read() == b"" and os.fstat(reading.fileno()).st_blocks == 0
    reading.close()


def test_bytes_that_come_give_way_to_who_keeps_to_its_share(tmp_path: Path) -> None:
    store = a_store(tmp_path, limit=3 * HEAD_BYTES)
    junk = bytes(2 * HEAD_BYTES - 1)
    with store.incoming("greedy", DIGEST) as greedy:
        greedy.begin("m")
        greedy.write(junk)
        digest = bring(store, "a", b"small")
        with pytest.raises(NotTakenError, match="another namespace"):
            greedy.write(b"x")

    assert store.has("a", digest)


def test_bytes_that_have_given_way_are_never_kept(tmp_path: Path) -> None:
    """All have come, and are right: what is on the disk is not."""
    store = a_store(tmp_path, limit=2 * HEAD_BYTES)
    data = bytes(HEAD_BYTES - 1)
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    with store.incoming("greedy", digest) as greedy:
        greedy.begin("m")
        greedy.write(data)
        greedy.verify()
        bring(store, "a", b"")
        with pytest.raises(NotTakenError, match="another namespace"):
            greedy.commit()

    assert not store.has("greedy", digest) and store.used == HEAD_BYTES


def test_who_keeps_to_its_share_loses_no_bytes_that_come(tmp_path: Path) -> None:
    store = a_store(tmp_path, limit=2 * HEAD_BYTES + 600)
    with store.incoming("a", DIGEST) as coming:
        coming.begin("m")
        coming.write(DATA)
        with pytest.raises(NotTakenError):
            bring(store, "greedy", bytes(1000))
        coming.verify()
        coming.commit()

    assert store.has("a", DIGEST)


def test_what_comes_without_a_length_is_bounded_all_the_same(tmp_path: Path) -> None:
    store = a_store(tmp_path, limit=HEAD_BYTES + 100)
    with pytest.raises(NotTakenError) as refused:
        bring(store, "a")

    assert refused.value.status is HTTPStatus.INSUFFICIENT_STORAGE
    assert store.used == 0 and store.counts.refused == {HTTPStatus.INSUFFICIENT_STORAGE: 1}
    assert bring(store, "a", b"small")


def test_names_that_fill_the_head_are_refused(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    with pytest.raises(NotTakenError):
        bring(store, "a", name="x" * HEAD_BYTES)
    assert store.used == 0
