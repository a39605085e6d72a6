"""The page of GPUs quotes what workers really say of them: whoever reads a message finds its row, and no row is of a message of before."""

import re
from pathlib import Path

import pytest

from inference_worker.device import why_absent_by
from inference_worker.engines import providers
from inference_worker.engines.engine import RunMode
from inference_worker.engines.providers import TENSORRT, TENSORRT_RTX, why_dropped
from inference_worker.errors import WorkerError, out_of_memory
from inference_worker.warmup import device_buckets
from tests.pages import ROOT
from tests.unit.worker.test_device import Driver

CUDA = "CUDAExecutionProvider"
_PAGE = (ROOT / "docs" / "tasks" / "nvidia-gpus.md").read_text()


def quoted() -> list[str]:
    """What the table says that messages say: parts of them, where `…` stands for anything."""
    _, _, table = _PAGE.partition("\n| The message says |")
    cells = re.findall(r"^\| ([^|]+) \|", table.partition("\n\n")[0], re.MULTILINE)
    return [text for cell in cells for text in re.findall("`([^`]+)`", cell)]


def refusal(provider: str) -> str:
    """What a worker with the CPUs' runtime says of a provider."""
    with pytest.raises(WorkerError) as error:
        providers.usable((provider,))
    return error.value.message


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    nothing: Path = tmp_path_factory.mktemp("capi")
    fell_back = f"{TENSORRT} was asked for, but the runtime fell back to {CUDA}: "
    return [
        why_absent_by(None, {}),
        why_absent_by(Driver(count=0), {}),
        why_absent_by(Driver(count=0), {"CUDA_VISIBLE_DEVICES": ""}),
        why_absent_by(Driver(count=0), {"CUDA_VISIBLE_DEVICES": "7"}),
        why_absent_by(Driver("cuInit", code=803), {}),
        why_absent_by(Driver("cuInit", code=802), {}),
        refusal(CUDA),
        refusal(TENSORRT_RTX),
        fell_back + why_dropped(TENSORRT, nothing),
        fell_back + why_dropped("ROCMExecutionProvider", nothing),
        out_of_memory("to load the model: Failed to allocate memory", on_cpu=False).message,
    ]


def test_each_row_quotes_a_message(messages: list[str]) -> None:
    unsaid = [quote for quote in quoted() if not any(_in(quote, message) for message in messages)]

    assert quoted() and [quote for quote in unsaid if quote != "OutOfMemory"] == []


def test_each_message_has_a_row(messages: list[str]) -> None:
    assert [message for message in messages if not any(_in(quote, message) for quote in quoted())] == []


def _in(quote: str, message: str) -> bool:
    return re.search(re.escape(quote).replace("…", ".*"), message) is not None


def test_the_page_has_each_way_in_which_runs_are_computed() -> None:
    section = _PAGE.partition("\n## See how runs are computed\n")[2].partition("\n## ")[0]

    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [mode.value for mode in RunMode]


def test_the_page_has_the_sizes_that_are_run_beforehand() -> None:
    """They decide which requests are quick: with the default of one row, none of more rows is."""
    ((sizes, most),) = re.findall(r"Those are\n([\d, and]+) with `batchSize: (\d+)`", _PAGE)

    assert tuple(int(size) for size in re.findall(r"\d+", sizes)) == device_buckets(int(most))
    assert "and 1 alone with `batchSize: 1`" in _PAGE and device_buckets(1) == (1,)
