"""Real Envoys as the chart starts them: told by the operators of a test, and always ended."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from dev.envoy import ensure_envoy
from tests.loopback import free_ports

ROOT = Path(__file__).resolve().parents[2]
BOOTSTRAP = ROOT / "charts" / "inference-operator" / "files" / "envoy.yaml"


@dataclass
class Envoy:
    """One process. `door` is the port for callers, `told_at` where its operators have to listen."""

    process: subprocess.Popen[bytes]
    log_file: Path
    audit_file: Path
    door: int
    admin: int
    metrics: int

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def audit(self) -> list[str]:
        """The lines about requests so far."""
        return self.audit_file.read_text().splitlines()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def bootstrap(control: int, admin: int, metrics: int) -> str:
    """The chart's file, for operators and callers on loopback."""
    addresses = dict.fromkeys(("OPERATOR_ADDRESS", "ADMIN_ADDRESS", "METRICS_ADDRESS"), "127.0.0.1")
    places = {**addresses, "OPERATOR_PORT": str(control), "9901": str(admin), "9902": str(metrics)}
    text = BOOTSTRAP.read_text()
    for name, value in places.items():
        text = text.replace(name, value)
    return text


def start(folder: Path, *, control: int, door: int, name: str = "envoy-1", zone: str = "") -> Envoy:
    """An Envoy that is told by whoever listens on `control`, and will listen on `door`."""
    admin, metrics = free_ports(2)
    config, log, audit = (folder / f"{name}.{suffix}" for suffix in ("yaml", "log", "audit"))
    config.write_text(bootstrap(control, admin, metrics))
    command = [
        *(str(ensure_envoy()), "--config-path", str(config), "--service-node", name, "--concurrency", "1", "--use-dynamic-base-id"),
        # Else a field that Envoy does not have would go unseen.
        *(("--service-zone", zone) if zone else ()),
        *("--reject-unknown-dynamic-fields", "--drain-time-s", "5", "--drain-strategy", "immediate", "--log-level", "warning"),
        *("--file-flush-interval-msec", "50"),
    ]
    with log.open("wb") as target, audit.open("wb") as lines:
        process = subprocess.Popen(command, stdout=lines, stderr=target, cwd=folder)
    return Envoy(process, log, audit, door, admin, metrics)
