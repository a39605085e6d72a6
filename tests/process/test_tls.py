"""Callers' ports with TLS: what is agreed on, who is let in, and certificates that are replaced while requests run."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from inference_protocol.messages import LIVE_PATH, READY_PATH, JwtRules, ServingTls
from tests.authority import Authority
from tests.process import models, wire, wire2
from tests.process.harness import a_config, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.authority import Signed
    from tests.process.harness import Place, Worker

NAME = "net-serve.team.svc"
INFER = "/v2/models/net/infer"
BODY = wire.infer_json([[1.0, 2.0]])
QUICK = {"inference_worker.serve.certificates:_LOOK_SECONDS": 0.05}
RULES = JwtRules(issuer="https://issuer.example", audiences=("net",))


class Tls(wire.Wire):
    """A connection by TLS. Raises ssl.SSLError and ConnectionError for one that is refused."""

    def __init__(self, port: int, context: ssl.SSLContext, *, name: str = NAME) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=wire.PATIENCE_SECONDS)
        self.socket = context.wrap_socket(plain, server_hostname=name)
        self._reader = self.socket.makefile("rb")


def context_of(ca: Authority, *protocols: str, client: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca.pem)
    # As newer Pythons check by default.
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if protocols:
        context.set_alpn_protocols(list(protocols))
    if client is not None:
        context.load_cert_chain(client)
    return context


def started(place: Place, root: Path, told: ServingTls, ca: Authority, **more: Any) -> Worker:
    ca.server(NAME).put(root / "tls")
    config = a_config(place.put("net.onnx", models.two_outputs()), serving_tls=told)
    worker = place.start(config, variables={"INFERENCE_IDENTITY_ROOT": str(root)}, **more)
    until(lambda: not worker.running or _ready(worker), "ready")
    assert worker.running, worker.log
    return worker


def _ready(worker: Worker) -> bool:
    try:
        return wire.get(worker.health_port, READY_PATH).status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def ca() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def worker(shared_place: Place, tmp_path_factory: pytest.TempPathFactory, ca: Authority) -> Worker:
    return started(shared_place, tmp_path_factory.mktemp("identity"), ServingTls(own_certificate=True), ca)


def test_http_is_answered_by_tls_and_alpn_agrees_on_it(worker: Worker, ca: Authority) -> None:
    with Tls(worker.port, context_of(ca, "h2", "http/1.1")) as connection:
        assert connection.socket.selected_alpn_protocol() == "http/1.1"  # type: ignore[attr-defined]
        assert connection.socket.version() == "TLSv1.3"  # type: ignore[attr-defined]
        assert connection.post(INFER, BODY).status == 200
        assert connection.post(INFER, BODY).status == 200


def test_grpc_is_answered_by_tls_and_alpn_agrees_on_h2(worker: Worker, ca: Authority) -> None:
    with socket.create_connection(("127.0.0.1", worker.grpc_port), timeout=wire.PATIENCE_SECONDS) as plain:
        tls = context_of(ca, "h2").wrap_socket(plain, server_hostname=NAME)
        assert tls.selected_alpn_protocol() == "h2"
        tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + wire2.frame(wire2.SETTINGS, 0, 0))
        assert tls.recv(9)[3] == wire2.SETTINGS


def test_what_is_older_than_tls_12_is_refused(worker: Worker, ca: Authority) -> None:
    old = context_of(ca)
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Tls(worker.port, old)


def test_tls_12_without_forward_secrecy_is_refused(worker: Worker, ca: Authority) -> None:
    weak = context_of(ca)
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("AES256-SHA256:AES128-GCM-SHA256:ECDHE-ECDSA-AES128-SHA")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Tls(worker.port, weak)


def test_plain_http_on_a_port_of_tls_gets_no_answer(worker: Worker) -> None:
    with wire.Wire(worker.port) as plain:
        plain.send(wire.request("GET", LIVE_PATH))
        with pytest.raises(ConnectionError):
            plain.read()


def test_probes_are_asked_in_plain_http_on_their_own_port_which_has_nothing_else(worker: Worker) -> None:
    assert wire.get(worker.health_port, LIVE_PATH).status == 200
    for path in ("/v2/models/net", "/metrics", "/telemetry", "/v2/health/ready"):
        assert wire.get(worker.health_port, path).status == 404
    assert wire.post(worker.health_port, READY_PATH, b"").status == 404


def test_callers_without_a_certificate_are_refused_where_the_job_asks_for_one(place: Place, tmp_path: Path, ca: Authority) -> None:
    callers, others = Authority("callers"), Authority("others")
    (tmp_path / "clients").mkdir()
    (tmp_path / "clients" / "ca.crt").write_text(callers.pem)
    worker = started(place, tmp_path, ServingTls(own_certificate=True, client_certificates=True), ca)

    with Tls(worker.port, context_of(ca, client=callers.client().file(tmp_path, "good"))) as let_in:
        assert let_in.post(INFER, BODY).status == 200
    expired = callers.client(seconds=-1.0).file(tmp_path, "expired")
    for refused in (None, others.client().file(tmp_path, "other"), callers.server("x").file(tmp_path, "server"), expired):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            # TLS 1.3 tells a client only with the first answer.
            Tls(worker.port, context_of(ca, client=refused)).post(INFER, BODY)


def keys_of(*keys: tuple[str, ec.EllipticCurvePrivateKey]) -> str:
    found = [{**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "alg": "ES256"} for kid, key in keys]
    return json.dumps({"keys": found})


def token(key: ec.EllipticCurvePrivateKey, **claims: Any) -> str:
    usual = {"iss": RULES.issuer, "aud": "net", "exp": time.time() + 600, "sub": "somebody"}
    return jwt.encode({**usual, **claims}, key, "ES256", {"kid": "1"})


def test_tokens_let_callers_in_by_issuer_audience_time_and_key(place: Place, tmp_path: Path, ca: Authority) -> None:
    key, other = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "jwt").mkdir()
    (tmp_path / "jwt" / "jwks.json").write_text(keys_of(("1", key)))
    worker = started(place, tmp_path, ServingTls(own_certificate=True, jwt=RULES), ca, patches=QUICK)

    def status(text: str | None) -> int:
        with Tls(worker.port, context_of(ca)) as connection:
            return connection.post(INFER, BODY, {"Authorization": f"Bearer {text}"} if text is not None else {}).status

    good = token(key)
    assert [status(good), status(good)] == [200, 200]
    unsigned = jwt.encode({"iss": RULES.issuer, "aud": "net", "exp": time.time() + 600}, "", "none")
    for bad in (
        None,
        "",
        "junk",
        token(other),
        token(key, aud="another"),
        token(key, iss="https://other.example"),
        token(key, exp=time.time() - 60),
        unsigned,
    ):
        assert status(bad) == 401, bad
    # A key that is taken back counts at once, also for tokens that were good.
    (tmp_path / "jwt" / "jwks.json").write_text(keys_of(("1", other)))
    until(lambda: status(good) == 401, "the new keys")


def test_a_certificate_is_replaced_without_a_lost_request(place: Place, tmp_path: Path, ca: Authority) -> None:
    worker = started(place, tmp_path, ServingTls(own_certificate=True), ca, patches=QUICK)
    faults: list[str] = []
    done, kept, seen = threading.Event(), [0], set()

    def keep_asking(*, new: bool) -> None:
        try:
            connection = Tls(worker.port, context_of(ca))
            while not done.is_set():
                if new:
                    connection.close()
                    connection = Tls(worker.port, context_of(ca))
                    seen.add(connection.socket.getpeercert(binary_form=True))  # type: ignore[attr-defined]
                assert connection.post(INFER, BODY).status == 200
                kept[0] += not new
        except Exception as error:  # noqa: BLE001 -- any is a lost request
            faults.append(repr(error))

    threads = [threading.Thread(target=keep_asking, kwargs={"new": new}) for new in (False, False, True, True)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        shown = ssl.PEM_cert_to_DER_cert(ca.server(NAME).put(tmp_path / "tls").chain)
        asked = kept[0]
        until(lambda: bool(faults) or (shown in seen and kept[0] > asked + 4), "the next one")  # noqa: B023
    done.set()
    for thread in threads:
        thread.join()

    assert not faults, faults


def test_a_certificate_without_its_key_spoils_nothing(place: Place, tmp_path: Path, ca: Authority) -> None:
    worker = started(place, tmp_path, ServingTls(own_certificate=True), ca, patches=QUICK)
    (tmp_path / "tls" / "tls.key").write_text(ca.server(NAME).key)

    until(lambda: "the one before stays" in worker.log, "a word of it")
    with Tls(worker.port, context_of(ca)) as connection:
        assert connection.post(INFER, BODY).status == 200


def test_keys_of_tokens_that_can_not_be_read_spoil_nothing(place: Place, tmp_path: Path, ca: Authority) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    keys = tmp_path / "jwt" / "jwks.json"
    keys.parent.mkdir()
    keys.write_text(keys_of(("1", key)))
    worker = started(place, tmp_path, ServingTls(own_certificate=True, jwt=RULES), ca, patches=QUICK)
    keys.write_text('{"keys": []}')
    until(lambda: "no JWK set" in worker.log, "a word of it")

    renewed = ca.server(NAME).put(tmp_path / "tls")
    until(lambda: shown(worker, ca) == ssl.PEM_cert_to_DER_cert(renewed.chain), "the new certificate")
    with Tls(worker.port, context_of(ca)) as connection:
        assert connection.post(INFER, BODY, {"Authorization": f"Bearer {token(key)}"}).status == 200


def shown(worker: Worker, ca: Authority) -> bytes | None:
    with Tls(worker.port, context_of(ca)) as connection:
        found: bytes | None = connection.socket.getpeercert(binary_form=True)  # type: ignore[attr-defined]
        return found


def test_a_worker_is_not_ready_before_it_has_a_certificate(place: Place, tmp_path: Path, ca: Authority) -> None:
    config = a_config(place.put("net.onnx", models.two_outputs()), serving_tls=ServingTls(own_certificate=True))
    worker = place.start(config, variables={"INFERENCE_IDENTITY_ROOT": str(tmp_path)}, patches=QUICK)
    until(lambda: "ready: net" in worker.log, "the model")
    assert wire.get(worker.health_port, READY_PATH).status == 503

    ca.server(NAME).put(tmp_path / "tls")
    until(lambda: _ready(worker), "ready")


def test_handshakes_that_do_not_go_on_keep_nobody_out(place: Place, tmp_path: Path, ca: Authority) -> None:
    few = {"inference_worker.serve.tls:HANDSHAKES": 16, "inference_worker.serve.tls:HANDSHAKE_SECONDS": 600.0}
    worker = started(place, tmp_path, ServingTls(own_certificate=True), ca, patches=few)
    silent = [wire.Wire(worker.port) for _ in range(100)]

    with Tls(worker.port, context_of(ca)) as connection:
        assert connection.post(INFER, BODY).status == 200
    # The oldest made room, one for each that came after.
    assert all(each.closed() for each in silent[:85])
    assert not any(each.said() for each in silent[85:])
    for each in silent:
        each.close()


def test_handshakes_that_do_not_go_on_are_ended_in_time(place: Place, tmp_path: Path, ca: Authority) -> None:
    quick = {"inference_worker.serve.tls:HANDSHAKE_SECONDS": 0.5}
    worker = started(place, tmp_path, ServingTls(own_certificate=True), ca, patches=quick)

    with wire.Wire(worker.port) as silent:
        assert silent.closed()


def test_grpcs_own_client_is_let_in_by_its_token_and_by_its_certificate(place: Place, tmp_path: Path, ca: Authority) -> None:
    key, callers = ec.generate_private_key(ec.SECP256R1()), Authority("callers")
    for name, text in (("jwt/jwks.json", keys_of(("1", key))), ("clients/ca.crt", callers.pem)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    worker = started(place, tmp_path, ServingTls(own_certificate=True, client_certificates=True, jwt=RULES), ca)

    def code(bearer: str | None, shown: Signed | None = None) -> grpc.StatusCode:
        pair = (shown.key.encode(), shown.chain.encode()) if shown is not None else (None, None)
        credentials = grpc.ssl_channel_credentials(ca.pem.encode(), *pair)
        where, options = f"127.0.0.1:{worker.grpc_port}", [("grpc.ssl_target_name_override", NAME)]
        metadata = [("authorization", f"Bearer {bearer}")] if bearer is not None else []
        with grpc.secure_channel(where, credentials, options) as channel:
            live = channel.unary_unary(f"{wire2.SERVICE}ServerLive")
            try:
                live(b"", timeout=wire.PATIENCE_SECONDS, metadata=metadata)
            except grpc.RpcError as error:
                found: grpc.StatusCode = error.code()
                return found
        return grpc.StatusCode.OK

    assert code(token(key)) is grpc.StatusCode.OK
    assert code(None, callers.client()) is grpc.StatusCode.OK
    assert code(None) is grpc.StatusCode.UNAUTHENTICATED
    assert code("junk") is grpc.StatusCode.UNAUTHENTICATED
    assert code(token(key), Authority().client()) is grpc.StatusCode.UNAVAILABLE, "a certificate of nobody's ends the handshake"


def test_a_worker_that_is_told_to_stop_answers_all_that_it_has_taken_by_tls(place: Place, tmp_path: Path, ca: Authority) -> None:
    worker = started(place, tmp_path, ServingTls(own_certificate=True), ca, patches=QUICK)
    answered, lost = [0], [0]

    def keep_asking() -> None:
        """As a client does it: a connection that is closed after its answer was told so before."""
        connection = Tls(worker.port, context_of(ca))
        while True:
            try:
                reply = connection.post(INFER, BODY)
            except (OSError, ssl.SSLError):
                lost[0] += 1
                return
            answered[0] += reply.status == 200
            if reply.headers.get("connection") == "close":
                return

    threads = [threading.Thread(target=keep_asking) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: answered[0] > 100 or lost != [0], "load")
    worker.stop()
    for thread in threads:
        thread.join()

    assert worker.ended().said.outcome == "Drained"
    assert lost == [0]


def test_a_caller_by_tls_that_takes_no_answers_is_ended(place: Place, tmp_path: Path, ca: Authority) -> None:
    quick = {"inference_worker.serve.connections:STALL_SECONDS": 1.0}
    worker = started(place, tmp_path, ServingTls(own_certificate=True), ca, patches=quick)
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.connect(("127.0.0.1", worker.port))
    connection = context_of(ca).wrap_socket(small, server_hostname=NAME)
    connection.settimeout(wire.PATIENCE_SECONDS)
    ask = wire.request("GET", "/metrics") * 64

    def keep_asking() -> None:
        """Until all buffers in between are full, and then until it is ended."""
        for _ in range(100_000):
            connection.sendall(ask)

    with pytest.raises((ConnectionError, ssl.SSLError)):
        keep_asking()
    assert wire.get(worker.health_port, LIVE_PATH).status == 200
