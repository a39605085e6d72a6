"""The certificate: made once for all replicas, renewed in time by the same CA, read only where another issues it."""

import base64
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from inference_operator.autoscaling.metricsapi import certificates
from inference_operator.autoscaling.metricsapi.certificates import LEAF_DAYS, RENEW_DAYS, Bundle, Certificates, issue, read_secret
from inference_operator.errors import RetryableError
from tests.unit.autoscaling.metricsapi.kube import FakeKube

PATH = "/api/v1/namespaces/system/secrets/tls"
NOW = datetime.now(UTC)


def certificates_of(kube: FakeKube, **more: Any) -> Certificates:
    return Certificates(kube, **{"namespace": "system", "secret": "tls", "service": "metrics", "makes": True, **more})


@pytest.fixture
def kube() -> FakeKube:
    """With the Secret as the chart makes it: its labels, and no data."""
    made = FakeKube()
    made.put(PATH, {"metadata": {"name": "tls", "labels": {"of": "the release"}}})
    return made


def leaf_of(bundle: Bundle) -> x509.Certificate:
    return x509.load_pem_x509_certificate(bundle.certificate.encode())


async def test_one_is_made_and_the_second_replica_takes_it(kube: FakeKube) -> None:
    first = await certificates_of(kube).current(NOW)
    second = await certificates_of(kube).current(NOW)

    assert first is not None and first == second
    assert (kube.did("replace"), kube.did("create")) == ([PATH], [])
    names = leaf_of(first).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "metrics.system.svc" in names.get_values_for_type(x509.DNSName)
    assert kube.objects[PATH]["metadata"]["labels"] == {"of": "the release"}


async def test_of_two_that_make_one_at_the_same_time_both_use_the_first(kube: FakeKube) -> None:
    rival = issue(("metrics.system.svc", "metrics.system", "metrics"), NOW)

    def quicker() -> None:
        data = {"tls.crt": rival.certificate, "tls.key": rival.key, "ca.crt": rival.ca, "ca.key": rival.ca_key or ""}
        kube.put(PATH, {"metadata": {"name": "tls"}, "data": {k: base64.b64encode(v.encode()).decode() for k, v in data.items()}})

    kube.before[f"replace {PATH}"] = quicker

    assert await certificates_of(kube).current(NOW) == rival


async def test_it_is_renewed_in_time_and_its_ca_stays(kube: FakeKube) -> None:
    first = await certificates_of(kube).current(NOW)
    shortly = NOW + timedelta(days=LEAF_DAYS - RENEW_DAYS - 1)
    assert first is not None
    assert await certificates_of(kube).current(shortly) == first

    renewed = await certificates_of(kube).current(shortly + timedelta(days=2))

    assert renewed is not None and renewed.certificate != first.certificate
    assert (renewed.ca, renewed.ca_key) == (first.ca, first.ca_key)
    assert leaf_of(renewed).not_valid_after_utc > leaf_of(first).not_valid_after_utc
    leaf_of(renewed).verify_directly_issued_by(x509.load_pem_x509_certificate(renewed.ca.encode()))


async def test_a_ca_that_ends_is_replaced_with_the_certificate(kube: FakeKube) -> None:
    first = await certificates_of(kube).current(NOW)
    late = await certificates_of(kube).current(NOW + timedelta(days=certificates.CA_DAYS - LEAF_DAYS))

    assert first is not None and late is not None
    assert late.ca != first.ca


@pytest.mark.parametrize("spoilt", ["tls.crt", "tls.key", "ca.crt"])
async def test_a_secret_that_holds_nonsense_is_made_anew(kube: FakeKube, spoilt: str) -> None:
    await certificates_of(kube).current(NOW)
    kube.objects[PATH]["data"][spoilt] = "" if spoilt == "tls.key" else base64.b64encode(b"nonsense").decode()

    made = await certificates_of(kube).current(NOW)

    assert made is not None and leaf_of(made)


async def test_a_key_of_another_certificate_is_made_anew(kube: FakeKube) -> None:
    first = await certificates_of(kube).current(NOW)
    other = issue(("metrics.system.svc", "metrics.system", "metrics"), NOW)
    kube.objects[PATH]["data"]["tls.key"] = base64.b64encode(other.key.encode()).decode()
    made = await certificates_of(kube).current(NOW)

    assert made is not None and first is not None
    assert made.key not in (first.key, other.key)


async def test_a_certificate_for_another_name_is_made_anew(kube: FakeKube) -> None:
    first = await certificates_of(kube, service="other").current(NOW)

    assert await certificates_of(kube).current(NOW) != first


async def test_where_another_issues_nothing_is_written(kube: FakeKube) -> None:
    assert await certificates_of(kube, makes=False).current(NOW) is None
    given = issue(("metrics.system.svc",), NOW - timedelta(days=LEAF_DAYS))
    texts = {"tls.crt": given.certificate, "tls.key": given.key, "ca.crt": given.ca}
    kube.put(PATH, {"metadata": {"name": "tls"}, "data": {k: base64.b64encode(v.encode()).decode() for k, v in texts.items()}})

    found = await certificates_of(kube, makes=False).current(NOW)

    assert found is not None and found.ca_key is None
    assert kube.did("create", "replace") == []


async def test_a_secret_that_is_missing_is_left_to_whoever_installs() -> None:
    kube = FakeKube()

    with pytest.raises(RetryableError, match="an upgrade of the release makes it"):
        await certificates_of(kube).current(NOW)
    assert await certificates_of(kube, makes=False).current(NOW) is None
    assert kube.did("create", "replace") == []


def test_a_certificate_without_a_ca_is_trusted_as_it_is() -> None:
    texts = {"tls.crt": "C", "tls.key": "K"}
    secret = {"data": {k: base64.b64encode(v.encode()).decode() for k, v in texts.items()}}

    assert read_secret(secret) == Bundle("C", "K", "C", None)
    assert read_secret({"data": {"tls.crt": "not base64!", "tls.key": "x"}}) is None
    assert read_secret({}) is None


def test_what_is_no_certificate_is_told_at_loading() -> None:
    with pytest.raises(ssl.SSLError):
        certificates.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), Bundle("x", "y", "z"))
