"""What is in a support bundle, which leaves the cluster, and where it is written."""

from __future__ import annotations

import base64
import gzip
import json
import os
import stat
import tarfile
from typing import TYPE_CHECKING

import pytest

from kubectl_inference import redact
from kubectl_inference.commands.report import _pack

if TYPE_CHECKING:
    from pathlib import Path

S = "s3cret-Value9"


@pytest.mark.parametrize(
    "line",
    [
        f"GET https://{S}@git.example.com/x.git",
        f"GET https://user:p@{S}@host/x",
        f"proxy http://user:{S}@10.0.0.1:3128",
        f"https://b.s3.amazonaws.com/k?X-Amz-Security-Token={S}&X-Amz-Date=1",
        f"https://x.blob.core.windows.net/c/k?sv=1&sig={S}&se=2",
        f"https://d.cloudfront.net/k?Policy={S}&Signature={S}&Key-Pair-Id=K",
        f"https://host/k?access_token={S}",
        f"https://host/k?a=1&amp;token={S}",
        f"AWS_SECRET_ACCESS_KEY={S}",
        f'{{"level": "info", "secret_access_key": "{S}"}}',
        f'{{"msg": "{{\\"password\\": \\"{S}\\"}}"}}',
        f"password: {S}",
        f"db_password='{S} and more {S}'",
        f"Authorization: Token {S}",
        f'"authorization": "ApiKey {S}"',
        f"Cookie: a=b; session={S}",
        f"authorization=Bearer {S}",
        f"started with --api-key={S}",
        "token ghp_s3cretValue9s3cretValue9",
        "token glpat-s3cretValue9s3cretValue9",
        f"-----BEGIN RSA PRIVATE KEY-----\n{S}\n",
    ],
)
def test_no_credential_of_a_log_is_in_a_report(line: str) -> None:
    told = redact.text(line)

    assert S not in told and "s3cretValue9" not in told and redact.REDACTED in told


@pytest.mark.parametrize(
    "line",
    [
        "model hf://org/repo@main/model.onnx, oci://host/repo@sha256:00",
        "imagePullPolicy: IfNotPresent, max_tokens=5, the Secret writer lacks AWS_SECRET_ACCESS_KEY, token expired",
        "GET /v2/models/digits?v=1 200",
        "2026-12-01T12:00:00Z ready in 3.1 s; sha256:0000",
    ],
)
def test_what_is_no_credential_stays(line: str) -> None:
    assert redact.text(line) == line


APPLIED = json.dumps({"spec": {"template": {"env": [{"name": "X", "value": S}]}}})


@pytest.mark.parametrize(
    "found",
    [
        {"metadata": {"annotations": {"kapp.k14s.io/original": APPLIED}}},
        {
            "metadata": {
                "annotations": {"objectset.rio.cattle.io/applied": base64.b64encode(gzip.compress(APPLIED.encode())).decode()}
            }
        },
        {"metadata": {"annotations": {"agent.example.com/token": S}}},
        {"metadata": {"annotations": {"deployed-from": f"https://ci:{S}@git/x"}}},
        {"httpGet": {"httpHeaders": [{"name": "X-Api-Key", "value": S}]}},
        {"command": ["serve", "--password", S]},
        {"args": [f"--token={S}"]},
        {"password": 1234567890},
        {"apiKeys": S},
        {"env": [{"name": "A", "value": S}]},
        {"data": {"config.yaml": f"fetch:\n  httpsProxy: http://u:{S}@proxy:3128\nheaders: {{authorization: Basic {S}}}\n"}},
    ],
)
def test_no_secret_of_an_object_is_in_a_report(found: dict) -> None:
    told = json.dumps(redact.document(found))

    assert S not in told and "1234567890" not in told
    assert base64.b64encode(gzip.compress(b""))[:4].decode() not in told and redact.REDACTED in told


def test_objects_keep_what_is_no_secret() -> None:
    found = {
        "metadata": {"annotations": {"team": "vision", "deployment.kubernetes.io/revision": "3"}},
        "spec": {
            "restartPolicy": "Never",
            "imagePullPolicy": "Always",
            "automountServiceAccountToken": False,
            "imagePullSecrets": [{"name": "pull"}],
            "secretKeyRef": {"name": "store", "key": "k"},
            "command": ["python3", "-I", "-m", "inference_worker"],
            "maxTokens": 5,
        },
    }

    assert redact.document(found) == found


@pytest.mark.parametrize(
    "part",
    [
        "eyJaaaaaaaa-",
        "a.",
        "-",
        "password ",
        "token\t",
        "x://",
        "?token",
        "-----BEGIN A PRIVATE KEY-----",
        "authorization:",
        "api-",
        "bearer ",
        "AKIA",
        '"secret":"',
        "basic a.",
    ],
)
def test_a_log_that_was_written_for_the_patterns_is_read_once(part: str) -> None:
    """1 MiB, of the 4 that a report takes. A pattern that begins anew at each letter of it would take an hour, and so would this test."""
    assert redact.text(part * ((1 << 20) // len(part)))


def test_a_report_is_its_owners_alone_and_follows_no_link(tmp_path: Path) -> None:
    victim, target = tmp_path / "victim", tmp_path / "job-report.tar.gz"
    victim.write_text("mine")
    target.symlink_to(victim)
    before = os.umask(0)
    try:
        _pack(target, "job-report", [("a/b.txt", "words \ud800")])
    finally:
        os.umask(before)

    assert victim.read_text() == "mine" and not target.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    with tarfile.open(target) as archive:
        assert [(one.name, one.mode) for one in archive] == [("job-report/a/b.txt", 0o600)]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["job-report.tar.gz", "victim"]


def test_a_report_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").touch()

    with pytest.raises(OSError):
        _pack(tmp_path / "taken", "f", [("a", "b")])

    assert [one.name for one in tmp_path.iterdir()] == ["taken"]
