"""Kubeconfigs as users have them: the context that is meant is kubectl's, and a fault is told in one line."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from inference_client.aio_transport import AsyncTransport
from inference_client.errors import ConfigurationError
from inference_client.kubeconfig import chosen
from inference_client.transport import Transport

SERVER = {"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}
USER = {"name": "u", "user": {"token": "t"}}


def context(name: str, namespace: str | None = None) -> dict[str, Any]:
    given = {} if namespace is None else {"namespace": namespace}
    return {"name": name, "context": {"cluster": "k", "user": "u", **given}}


MINE, OTHER = context("mine", "demo"), context("other", "elsewhere")


@pytest.fixture(autouse=True)
def nobodys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def written(path: Path, current: str | None = "mine", *, user: dict[str, Any] = USER, **changes: Any) -> str:
    document = {"clusters": [SERVER], "users": [user], "contexts": [MINE, OTHER], **changes}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document if current is None else {**document, "current-context": current}))
    return str(path)


@pytest.mark.parametrize("current", [None, ""])
def test_a_context_that_is_named_needs_no_current_one(tmp_path: Path, current: str | None) -> None:
    transport = Transport.from_kubeconfig(written(tmp_path / "config", current), "other")

    assert (transport.namespace, transport.api.configuration.host) == ("elsewhere", "https://127.0.0.1:1")


@pytest.mark.parametrize("current", [None, ""])
def test_without_any_context_nothing_is_asked(tmp_path: Path, current: str | None) -> None:
    with pytest.raises(ConfigurationError, match=r"no current-context is set; .*--context"):
        Transport.from_kubeconfig(written(tmp_path / "config", current))


def test_of_several_files_the_first_current_context_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a command would change another cluster than kubectl's."""
    first = written(tmp_path / "first", "other", clusters=None, users=None)
    second = written(tmp_path / "second", "mine")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}{os.pathsep}{first}{os.pathsep}{second}{os.pathsep}")

    assert Transport.from_kubeconfig().namespace == "elsewhere"
    assert asyncio.run(_namespace()) == "elsewhere"


async def _namespace() -> str:
    transport = await AsyncTransport.from_kubeconfig()
    await transport.close()
    return transport.namespace


def test_of_two_contexts_of_a_name_the_first_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = written(tmp_path / "first", None, contexts=[context("mine")])
    monkeypatch.setenv("KUBECONFIG", f"{first}{os.pathsep}{written(tmp_path / 'second')}")

    assert chosen(None, None).namespace == "default"


def test_an_empty_variable_names_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "home" / ".kube" / "config")
    monkeypatch.setenv("KUBECONFIG", "")

    assert Transport.from_kubeconfig().namespace == "demo"


def test_lines_of_windows_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "config"))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))

    assert Transport.from_kubeconfig(str(path)).namespace == "demo"


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"a: [b", "can't be read"), (b"\x00\xff", "can't be read"), (b"[]", "no kubeconfig"), (b"contexts: 1", "current-context")],
)
def test_what_is_no_kubeconfig_is_told_in_a_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)

    with pytest.raises(ConfigurationError, match=words) as caught:
        Transport.from_kubeconfig(str(path))

    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize("program", ["/nowhere/credentials", "false", "true"])
def test_whoever_gets_no_credentials_asks_nothing(tmp_path: Path, program: str) -> None:
    """The package would go on as nobody, whom a cluster may let look at something."""
    given = {"apiVersion": "client.authentication.k8s.io/v1", "command": program, "interactiveMode": "Never"}
    path = written(tmp_path / "config", user={"name": "u", "user": {"exec": given}})

    with pytest.raises(ConfigurationError, match=f"'{program}' gave no credentials for context 'mine'"):
        Transport.from_kubeconfig(path)
    with pytest.raises(ConfigurationError, match="gave no credentials"):
        asyncio.run(AsyncTransport.from_kubeconfig(path))


def test_an_answer_that_cannot_be_written_is_told_in_a_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kubectl_inference", "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert (done.returncode, done.stderr) == (1, "error: [Errno 28] No space left on device\n")
