"""The cache of a node: workers get from it what they would have fetched, one of them fetches, and nobody gets anything else."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

import pytest

from inference_protocol.messages import ModelSource, Storage
from inference_protocol.node_cache import FILL_HEADER, HEAD_BYTES, MODELS_PATH, model_digest, token
from tests.process import models
from tests.process.harness import a_config, until
from tests.process.node_caches import KEY, NodeCache, bundle, digest_of, headers_of, path_of
from tests.process.patched import LOOPBACK_ALLOWED
from tests.process.wire import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.process.harness import Place, Worker

MODEL = models.matmul()
DIGEST = digest_of(MODEL)
BYTES = os.urandom(3 << 20)


@pytest.fixture
def caches(tmp_path: Path) -> Iterator[Callable[..., NodeCache]]:
    """Starts caches, and ends them."""
    made: list[NodeCache] = []

    def start(**changes: Any) -> NodeCache:
        root = tmp_path / f"cache-{len(made)}"
        root.mkdir()
        made.append(NodeCache(root, **changes))
        return made[-1]

    yield start
    for cache in made:
        cache.kill()


@pytest.fixture
def cache(caches: Callable[..., NodeCache]) -> NodeCache:
    return caches()


@pytest.fixture(scope="module")
def any_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCache]:
    """For tests that only talk to one, each of models of its own."""
    made = NodeCache(tmp_path_factory.mktemp("cache"))
    yield made
    made.kill()


class Origin:
    """Where models are: files by path, how often each was asked for, and a gate that holds answers up."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        origin = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                origin.asked.append(self.path)
                origin.gate.wait(30)
                data = origin.files.get(self.path)
                self.send_response(200 if data is not None else 404)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                self.wfile.write(data or b"")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://localhost:{self.server.server_port}"


@contextmanager
def origin_of(**files: bytes) -> Iterator[Origin]:
    origin = Origin({f"/{name}.onnx": data for name, data in files.items()})
    threading.Thread(target=origin.server.serve_forever, daemon=True).start()
    try:
        yield origin
    finally:
        origin.gate.set()
        origin.server.shutdown()
        origin.server.server_close()


def a_worker(place: Place, cache: NodeCache, origin: Origin, *, digest: str = DIGEST, **changes: Any) -> Worker:
    config = a_config(f"{origin.url}/net.onnx", digest=digest, fetch_from=("localhost",), **changes)
    return place.start(config, patches={LOOPBACK_ALLOWED: True}, variables=cache.variables(digest))


def test_a_second_worker_starts_from_the_cache_alone(place: Place, cache: NodeCache) -> None:
    with origin_of(net=MODEL) as origin:
        first = a_worker(place, cache, origin).wait_ready()
        until(lambda: cache.metrics("cache_models") == 1, "the model in the cache")
        first.kill()
        a_worker(place, cache, origin).wait_ready()

    assert origin.asked == ["/net.onnx"]
    assert (cache.metrics("cache_hits_total"), cache.metrics("cache_misses_total")) == (1, 1)


def test_workers_that_start_together_fetch_once(place: Place, cache: NodeCache) -> None:
    with origin_of(net=MODEL) as origin:
        origin.gate.clear()
        workers = [a_worker(place, cache, origin) for _ in range(3)]
        until(lambda: len(origin.asked) == 1, "the first fetch")
        origin.gate.set()
        for worker in workers:
            worker.wait_ready()

    assert origin.asked == ["/net.onnx"]


def test_the_next_worker_fetches_when_the_first_dies(place: Place, cache: NodeCache) -> None:
    with origin_of(net=MODEL) as origin:
        origin.gate.clear()
        first = a_worker(place, cache, origin)
        until(lambda: len(origin.asked) == 1, "the first fetch")
        second = a_worker(place, cache, origin)
        until(lambda: cache.metrics("cache_misses_total") == 1, "the first miss")
        first.kill()
        until(lambda: len(origin.asked) == 2, "the second fetch")
        origin.gate.set()
        second.wait_ready()


def test_a_worker_without_its_cache_fetches_itself(place: Place, cache: NodeCache) -> None:
    cache.kill()
    with origin_of(net=MODEL) as origin:
        a_worker(place, cache, origin).wait_ready()


def test_weights_in_other_files_come_from_the_cache_too(place: Place, cache: NodeCache) -> None:
    data, beside = models.with_external_data()
    digest = model_digest({"net.onnx": digest_of(data), **{name: digest_of(each) for name, each in beside.items()}})
    with origin_of(net=data) as origin:
        origin.files.update({f"/{name}": each for name, each in beside.items()})
        first = a_worker(place, cache, origin, digest=digest).wait_ready()
        until(lambda: cache.metrics("cache_models") == 1, "the model in the cache")
        first.kill()
        a_worker(place, cache, origin, digest=digest).wait_ready()

    assert len(origin.asked) == 1 + len(beside)


@pytest.mark.parametrize("what", ["a file's bytes", "the head", "another model's own file first", "files as one"])
def test_a_damaged_cache_poisons_no_worker(place: Place, cache: NodeCache, what: str) -> None:
    data, beside = models.with_external_data()
    files = {"net.onnx": data, **beside}
    digest = model_digest({name: digest_of(each) for name, each in files.items()})
    cache.keep(files, digest)
    path = cache.folder / "team" / digest.removeprefix("sha256:")
    if what == "a file's bytes":
        path.write_bytes(bundle(files)[:-1] + b"?")
    elif what == "the head":
        path.write_bytes(b"?" + bundle(files)[1:])
    elif what == "another model's own file first":
        path.write_bytes(bundle(dict(reversed(files.items()))))
    else:
        lines = "".join(f"{digest_of(files[n]).removeprefix('sha256:')}  {n}\n" for n in sorted(files)).encode()
        assert digest_of(lines) == digest
        path.write_bytes(bundle({"net.onnx": lines}))
    with origin_of(net=data) as origin:
        origin.files.update({f"/{name}": each for name, each in beside.items()})
        worker = a_worker(place, cache, origin, digest=digest).wait_ready()
        assert "net.onnx" in origin.asked[0]
        # It has brought the right bytes in place of those.
        until(lambda: cache.get(digest)[1][HEAD_BYTES:] == bundle(files)[HEAD_BYTES:], "the model anew")
        worker.kill()


def test_a_namespace_reads_nothing_that_another_has_brought(cache: NodeCache) -> None:
    digest = digest_of(BYTES)
    cache.keep({"m": BYTES}, digest)

    # It may name the digest in a model of its own, and so has a token for it, and still has to have the bytes.
    assert cache.get(digest, namespace="other")[0] == 404
    assert cache.put(digest, bundle({"m": BYTES[:-1] + b"?"}), namespace="other") == 422
    assert cache.get(digest, namespace="other")[0] == 404
    cache.keep({"m": BYTES}, digest, namespace="other")
    assert cache.metrics("cache_models") == 1, "the same bytes are on disk once"


@pytest.mark.parametrize(
    "bearer",
    ["", "0" * 64, token(KEY, "other", DIGEST), token(KEY, "team", digest_of(b"other")), token(b"another key", "team", DIGEST)],
)
def test_a_model_needs_its_own_token(any_cache: NodeCache, bearer: str) -> None:
    if any_cache.get(DIGEST)[0] != 200:
        any_cache.keep({"m": MODEL}, DIGEST)

    assert any_cache.get(DIGEST, bearer=bearer) == (403, b"")


def test_namespaces_share_where_the_administrator_says_so(caches: Callable[..., NodeCache]) -> None:
    cache = caches(shared=True)
    cache.keep({"m": BYTES}, digest_of(BYTES))

    assert cache.get(digest_of(BYTES), namespace="other")[0] == 200


def test_another_form_of_the_same_digest_stays_its_own_namespaces(cache: NodeCache) -> None:
    files = {"a.onnx": b"model", "b.bin": b"weights"}
    lines = "".join(f"{digest_of(files[n]).removeprefix('sha256:')}  {n}\n" for n in sorted(files)).encode()
    digest = digest_of(lines)
    cache.keep(files, digest)
    cache.keep({"m": lines}, digest, namespace="attacker")

    assert cache.get(digest)[1] == bundle(files)
    assert cache.metrics("cache_models") == 2


@pytest.mark.parametrize(
    ("files", "told"),
    [({"m": b"short"}, 422), ({"m": b"x", "n": b"y"}, 422)],
)
def test_wrong_bytes_are_not_taken(cache: NodeCache, files: dict[str, bytes], told: int) -> None:
    assert cache.put(digest_of(BYTES), bundle(files)) == told
    assert cache.metrics("cache_refused_total") == 1 and not list((cache.folder / ".incoming").iterdir())


def test_a_head_that_tells_of_other_bytes_is_refused(any_cache: NodeCache) -> None:
    for body in (b"", b"x" * (HEAD_BYTES - 1), b"x" * HEAD_BYTES, bundle({"m": b"1"}) + b"2", b"[]".ljust(HEAD_BYTES)):
        assert any_cache.put(digest_of(b"nobody's"), body) == 400


def test_huge_requests_are_refused_before_they_are_read(any_cache: NodeCache) -> None:
    for head in (
        f"PUT {path_of('team', DIGEST)} HTTP/1.1\r\nAuthorization: Bearer {token(KEY, 'team', DIGEST)}\r\nContent-Length: {1 << 45}\r\n\r\n",
        f"PUT {path_of('team', DIGEST)} HTTP/1.1\r\nAuthorization: Bearer {token(KEY, 'team', DIGEST)}\r\nTransfer-Encoding: chunked\r\n\r\n",
        f"POST /v1/wanted HTTP/1.1\r\nContent-Length: {2 << 20}\r\n\r\n",
        f"GET /{'x' * (70 << 10)} HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\n" + "".join(f"X-{n}: y\r\n" for n in range(200)) + "\r\n",
    ):
        with socket.create_connection(("127.0.0.1", any_cache.port), PATIENCE_SECONDS) as raw:
            raw.sendall(head.encode())
            status = raw.recv(4096).split()[1]
            assert status in (b"411", b"413", b"414", b"431"), head[:60]


def test_least_recently_used_models_give_way(caches: Callable[..., NodeCache]) -> None:
    cache = caches(limit=7 << 20)
    bodies = [os.urandom(3 << 20) for _ in range(3)]
    for body in bodies[:2]:
        cache.keep({"m": body}, digest_of(body))
    assert cache.get(digest_of(bodies[0]))[0] == 200
    cache.keep({"m": bodies[2]}, digest_of(bodies[2]))

    assert [cache.get(digest_of(body))[0] for body in bodies] == [200, 404, 200]
    assert cache.metrics("cache_evictions_total") == 1
    assert (cache.metrics("cache_size_bytes") or 0) <= (cache.metrics("cache_limit_bytes") or 0)


def test_a_model_that_is_too_large_is_not_taken(caches: Callable[..., NodeCache]) -> None:
    cache = caches(limit=2 << 20)

    assert cache.put(digest_of(BYTES), bundle({"m": BYTES})) == 413


def test_a_full_disk_takes_nothing_and_harms_nothing(caches: Callable[..., NodeCache]) -> None:
    # No file of this process may be longer: the kernel says EFBIG, where a full disk says ENOSPC.
    cache = caches()
    cache.keep({"m": MODEL}, DIGEST)
    cache.kill()
    cache.environment["PATCHES"] = "{}"
    cache.command = (cache.command[0], "-c", FULL_DISK + cache.command[2])
    cache.start()

    assert cache.put(digest_of(BYTES), bundle({"m": BYTES})) == 507
    assert cache.get(DIGEST)[0] == 200
    assert not list((cache.folder / ".incoming").iterdir())


FULL_DISK = """
import errno, pathlib
real = pathlib.Path.open
def opened(self, *mode, **more):
    file = real(self, *mode, **more)
    if mode == ("x+b",):
        def write(block):
            raise OSError(errno.ENOSPC, "No space left on device")
        class Full:
            def __getattr__(self, name): return write if name == "write" else getattr(file, name)
            def __enter__(self): return self
            def __exit__(self, *_): file.close()
        return Full()
    return file
pathlib.Path.open = opened
"""


def test_models_outlive_the_process_and_what_was_half_written_does_not(cache: NodeCache) -> None:
    cache.keep({"m": BYTES}, digest_of(BYTES))
    with socket.create_connection(("127.0.0.1", cache.port), PATIENCE_SECONDS) as raw:
        body = bundle({"m": MODEL})
        head = f"PUT {path_of('team', DIGEST)} HTTP/1.1\r\nContent-Length: {len(body)}\r\n{authorization(DIGEST)}\r\n\r\n"
        raw.sendall(head.encode() + body[:-10])
        until(lambda: bool(list((cache.folder / ".incoming").iterdir())), "the begun file")
        cache.kill()
    cache.start()

    assert cache.get(digest_of(BYTES))[1] == bundle({"m": BYTES})
    assert cache.get(DIGEST)[0] == 404
    assert not list((cache.folder / ".incoming").iterdir())


def authorization(digest: str) -> str:
    return f"Authorization: Bearer {token(KEY, 'team', digest)}"


def test_slow_readers_and_drips_are_ended(cache: NodeCache) -> None:
    large = os.urandom(24 << 20)
    cache.keep({"m": large}, digest_of(large))
    cache.kill()
    server = "inference_worker.node_cache.server"
    quick = {f"{server}:_BODY_SECONDS": 1.0, f"{server}:_SLOWEST_BYTES_A_SECOND": 1 << 40}
    cache.environment["PATCHES"] = json.dumps({"inference_worker.node_cache.bounded_server:HEAD_SECONDS": 0.5, **quick})
    cache.start()
    asks = f"GET {path_of('team', digest_of(large))} HTTP/1.1\r\n{authorization(digest_of(large))}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", cache.port), PATIENCE_SECONDS) as dripping:
        until(partial(ended, dripping, b"G"), "the end of a head that drips")
    with socket.create_connection(("127.0.0.1", cache.port), PATIENCE_SECONDS) as slow:
        slow.sendall(asks)
        received = 0
        while data := read_some(slow):
            received += len(data)
            time.sleep(0.002)

    assert received < len(large)


def read_some(raw: socket.socket) -> bytes:
    try:
        return raw.recv(8 << 10)
    except ConnectionError:
        return b""


def ended(raw: socket.socket, drip: bytes) -> bool:
    try:
        raw.sendall(drip)
    except OSError:
        return True
    return False


def test_one_address_has_few_connections(any_cache: NodeCache) -> None:
    held = [socket.create_connection(("127.0.0.1", any_cache.port), PATIENCE_SECONDS) for _ in range(8)]
    try:
        until(lambda: refused(any_cache), "a connection that is refused")
    finally:
        for raw in held:
            raw.close()
    until(lambda: not refused(any_cache), "room again")


def refused(cache: NodeCache) -> bool:
    try:
        return cache.get(digest_of(b"nobody's"))[0] != 404
    except OSError:
        return True


def test_whoever_is_to_fetch_gives_that_up_with_its_connection(cache: NodeCache) -> None:
    first, second = cache.connection(), cache.connection()
    first.request("GET", path_of("team", DIGEST), headers=headers_of("team", DIGEST))
    told = first.getresponse()
    assert told.read() == b"" and told.getheader(FILL_HEADER)
    with ThreadPoolExecutor(1) as pool:
        second.request("GET", path_of("team", DIGEST), headers=headers_of("team", DIGEST))
        waiting = pool.submit(second.getresponse)
        first.close()

        answer = waiting.result(PATIENCE_SECONDS)
        assert (answer.status, answer.getheader(FILL_HEADER)) == (404, "true")
    second.close()


def a_source(origin: Origin, digest: str = DIGEST, **changes: Any) -> ModelSource:
    return ModelSource(name="net", version="2", uri=f"{origin.url}/net.onnx", digest=digest, **changes)


def stands(cache: NodeCache, *models: tuple[str, ModelSource]) -> list[str]:
    """How the models of an order stand, and why."""
    _, state = cache.order(*models)
    return [f"{model.state} {model.message}".strip() for model in state.models] if state is not None else []


def test_a_wanted_model_is_there_before_a_worker_asks(place: Place, cache: NodeCache) -> None:
    with origin_of(net=MODEL) as origin:
        until(lambda: stands(cache, ("team", a_source(origin))) == ["Cached"], "the prefetched model")
        a_worker(place, cache, origin).wait_ready()

    assert origin.asked == ["/net.onnx"]
    assert cache.metrics("cache_prefetched_total") == 1


def test_a_wanted_model_of_several_files_is_fetched_whole(cache: NodeCache) -> None:
    data, beside = models.with_external_data()
    files = {"net.onnx": data, **beside}
    digest = model_digest({name: digest_of(each) for name, each in files.items()})
    with origin_of(net=data) as origin:
        origin.files.update({f"/{name}": each for name, each in beside.items()})
        until(lambda: stands(cache, ("team", a_source(origin, digest))) == ["Cached"], "the prefetched model")

    assert cache.get(digest)[1][HEAD_BYTES:] == b"".join(files.values())


def test_what_must_not_be_fetched_here_is_not(caches: Callable[..., NodeCache]) -> None:
    with origin_of(net=MODEL) as origin:
        secret = a_source(origin, storage=Storage(secret="keys"))
        cache, closed = caches(), caches(hosts=())
        for where, source, why in (
            (cache, secret, "needs credentials"),
            (cache, ModelSource("net", "1", "pvc://data/net.onnx", DIGEST), "where they are"),
            (cache, ModelSource("net", "1", "http://elsewhere.example/net.onnx", DIGEST), "allowedHosts"),
            (cache, ModelSource("net", "1", "http://169.254.169.254/latest", DIGEST), "metadata"),
            (closed, a_source(origin), "lists no hosts"),
        ):
            until(lambda: stands(where, ("team", source))[0].startswith("Failed"), "the refusal")  # noqa: B023
            assert why in stands(where, ("team", source))[0]

    assert not origin.asked


def test_wrong_bytes_of_a_server_are_not_kept(cache: NodeCache) -> None:
    with origin_of(net=BYTES) as origin:
        until(lambda: stands(cache, ("team", a_source(origin)))[0].startswith("Failed"), "the refusal")

    assert cache.get(DIGEST)[0] == 404


def test_only_the_operators_newest_order_counts(cache: NodeCache) -> None:
    with origin_of(net=MODEL) as origin:
        assert cache.order(("team", a_source(origin)), key=b"stolen")[0] == 401
        now = time.time()
        assert cache.order(sent=now)[0] == 200
        assert cache.order(("team", a_source(origin)), sent=now)[0] == 409
        assert cache.order(("team", a_source(origin)), sent=now - 5)[0] == 409

    assert not origin.asked


def test_a_prefetch_gives_its_bytes_to_its_own_namespace_alone(cache: NodeCache) -> None:
    with origin_of(net=MODEL) as origin:
        until(lambda: stands(cache, ("team", a_source(origin))) == ["Cached"], "the prefetched model")

    assert cache.get(DIGEST, namespace="other")[0] == 404


def test_paths_lead_nowhere_else(any_cache: NodeCache) -> None:
    for path in (
        f"{MODELS_PATH}/../../etc/passwd",
        f"{MODELS_PATH}/.incoming/{DIGEST}",
        f"{MODELS_PATH}/team/{DIGEST}/",
        "/",
        "/metrics",
    ):
        connection = any_cache.connection()
        connection.request("GET", path)
        assert connection.getresponse().status == 404
        connection.close()


def test_who_has_many_connections_leaves_the_others_theirs(caches: Callable[..., NodeCache]) -> None:
    """From as many addresses as it likes: a namespace may have as many pods on a node."""
    bounds = "inference_worker.node_cache.bounded_server"
    cache = caches(patches={f"{bounds}:_CONNECTIONS": 16, f"{bounds}:_CONNECTIONS_OF_ONE": 1000})
    held = [cache.connection() for _ in range(16)]
    try:
        told = []
        for number, connection in enumerate(held):
            digest = digest_of(str(number).encode())
            connection.request("GET", path_of("greedy", digest), headers=headers_of("greedy", digest))
            answer = connection.getresponse()
            answer.read()
            told.append(answer.status)

        assert told.count(404) == 4 and set(told) == {404, 503}
        assert cache.get(DIGEST)[0] == 404
        # A connection counts for whom it speaks for.
        held[0].request("GET", path_of("team", DIGEST), headers=headers_of("team", DIGEST))
        assert held[0].getresponse().read() == b""
        assert cache.get(digest_of(b"again"), namespace="greedy")[0] == 404
    finally:
        for connection in held:
            connection.close()


def test_bytes_that_come_and_never_end_take_nobody_elses_share(caches: Callable[..., NodeCache]) -> None:
    """Nobody knows before their end whether they are a model."""
    cache = caches(limit=16 << 20)
    junk, own = bundle({"m": os.urandom(15 << 20)}), os.urandom(6 << 20)
    digest = digest_of(b"nothing has this digest")
    with socket.create_connection(("127.0.0.1", cache.port), 20) as greedy:
        head = f"PUT {path_of('greedy', digest)} HTTP/1.1\r\nContent-Length: {len(junk)}\r\n"
        greedy.sendall(f"{head}Authorization: Bearer {token(KEY, 'greedy', digest)}\r\n\r\n".encode() + junk[:-1])
        until(lambda: on_disk(cache) >= 14 << 20, "the bytes that never end")

        cache.keep({"m": own}, digest_of(own))

        assert on_disk(cache) <= 16 << 20
        greedy.sendall(junk[-1:])
        assert b" 507 " in greedy.recv(4096)
    assert cache.get(digest, namespace="greedy")[0] == 404


def test_who_reads_for_ever_what_has_given_way_fills_no_disk(caches: Callable[..., NodeCache]) -> None:
    """A file without a name keeps its room while somebody reads it: else a namespace has any number of them."""
    cache = caches(limit=32 << 20)
    readers = []
    try:
        for _ in range(4):
            body = os.urandom(24 << 20)
            cache.keep({"m": body}, digest_of(body))
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.connect(("127.0.0.1", cache.port))
            raw.sendall(f"GET {path_of('team', digest_of(body))} HTTP/1.1\r\n{authorization(digest_of(body))}\r\n\r\n".encode())
            assert raw.recv(64)
            readers.append(raw)

        assert on_disk(cache) <= 32 << 20
        # Who reads it hears that it has ended early, and fetches it from its store.
        readers[0].settimeout(20)
        while readers[0].recv(1 << 20):
            pass
    finally:
        for raw in readers:
            raw.close()


def on_disk(cache: NodeCache) -> int:
    """What the cache takes of its volume, also in files that have no name any more."""
    opened = [one for one in Path(f"/proc/{cache.process.pid}/fd").iterdir() if is_in(one, cache.folder)]
    taken: dict[int, int] = {}
    for path in [*opened, *cache.folder.rglob("*")]:
        try:
            found = path.stat()
        except OSError:
            # It has gone meanwhile.
            continue
        if S_ISREG(found.st_mode):
            taken[found.st_ino] = found.st_blocks * 512
    return sum(taken.values())


def is_in(descriptor: Path, folder: Path) -> bool:
    try:
        return str(descriptor.readlink()).startswith(str(folder))
    except OSError:
        return False
