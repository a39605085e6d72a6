"""A stand-in for NVIDIA's dcgm-exporter: its text in the documented form, of numbers that a test makes up. No DCGM runs here."""

from collections.abc import Iterable
from dataclasses import dataclass

BLANK = 9223372036854775794
"""What DCGM gives for what a device does not support."""


@dataclass(frozen=True)
class Gpu:
    """A device as the exporter would tell of it: percent and millijoules, and the pod that has it."""

    number: int = 0
    percent: float | None = 0
    millijoules: float | None = 0
    pod: tuple[str, str] | None = None
    part: str = ""

    @property
    def uuid(self) -> str:
        return f"GPU-{self.number:08d}-0000-0000-0000-000000000000"

    @property
    def labels(self) -> str:
        # Without a pod older exporters give empty labels, newer ones none.
        namespace, pod = self.pod or ("", "")
        mine = f',container="worker",namespace="{namespace}",pod="{pod}"' if self.pod is not None or self.number % 2 else ""
        part = f',GPU_I_PROFILE="1g.10gb",GPU_I_ID="{self.part}"' if self.part else ""
        return (
            f'gpu="{self.number}",UUID="{self.uuid}",device="nvidia{self.number}",modelName="NVIDIA H100 80GB HBM3"{part},'
            f'Hostname="gpu-node",DCGM_FI_DRIVER_VERSION="550.54.15"{mine}'
        )


def text(gpus: Iterable[Gpu]) -> str:
    """What GET /metrics answers, with series beside those that are read."""
    found = list(gpus)
    families = (
        ("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", [(gpu, 1980) for gpu in found]),
        ("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C).", [(gpu, BLANK) for gpu in found]),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ).",
         [(gpu, gpu.millijoules) for gpu in found]),
        ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", [(gpu, gpu.percent) for gpu in found]),
    )  # fmt: skip
    lines: list[str] = []
    for name, kind, help_, values in families:
        lines += [f"# HELP {name} {help_}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{{{gpu.labels}}} {value}" for gpu, value in values if value is not None]
    return "\n".join(lines) + "\n"
