"""What pages say of the plug-in is so: its options, what it prints, and data that the example model takes."""

import json
import re

from dev.cluster.layout import CONTROL_ADDRESS
from inference_operator.jobs.admission import admit
from inference_operator.workers.resolve import Refusal
from kubectl_inference.pages.status import status_page
from kubectl_inference.snapshot import Snapshot
from tests.builders import SETTINGS, observed
from tests.builders import a_job as an_operators_job
from tests.pages import PAGES, ROOT, blocks, commands, prose
from tests.unit.client.objects import NOW, a_job, waiting

PLUGIN = ROOT / "docs" / "tasks" / "kubectl-plugin.md"
OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
PIXELS = 64


def test_pages_give_the_plug_in_options_that_it_has() -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    known = {
        command: {option for names in re.findall(r"^\* `([^`]*)`", part, re.MULTILINE) for option in OPTION.findall(names)}
        for command, part in re.findall(r"^## `kubectl inference ([a-z-]+)`\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    }
    named = {
        (page.name, command, option)
        for page in PAGES
        for line in [*commands(page), *re.findall(r"`(kubectl inference [^`]+)`", prose(page).replace("\n", " "))]
        for command, rest in re.findall(r"kubectl inference ([a-z-]+)([^|;]*)", line)
        for option in OPTION.findall(rest)
    }

    assert named
    assert {given for given in named if given[2] not in known[given[1]]} == set()


def test_the_page_of_a_job_begins_as_the_documentation_shows_it() -> None:
    """What the operator refuses and what the plug-in makes of it are both the real ones."""
    refusal = admit(observed(an_operators_job("digits-batch", namespace="demo", model="digts")), SETTINGS, NOW)
    assert isinstance(refusal, Refusal)
    job = a_job(
        *waiting("Accepted", refusal.reason, refusal.message), spec={"model": "digts"}, name="digits-batch", phase="Waiting"
    )
    page = status_page(Snapshot(job, NOW, models=("digits", "magika")))

    shown = next(block.text for block in blocks(PLUGIN) if block.text.startswith("$ kubectl inference status"))
    assert page.headline.text in shown.splitlines()
    for section in page.sections[:2]:
        assert section.title in shown.splitlines()
        for line in section.texts():
            assert " ".join(line.removeprefix("meaning: ").split()) in " ".join(shown.split())


def test_the_example_model_takes_the_pixels_that_pages_send() -> None:
    """A page showed four, and the worker refused them."""
    sent = [row for page in PAGES for block in blocks(page) for row in re.findall(r'"pixels": \[+([^\]]*)\](?! \*)', block.text)]

    assert sent
    assert [len(json.loads(f"[{row}]")) for row in sent] == [PIXELS] * len(sent)


def test_the_local_clusters_page_names_the_address_at_which_pods_reach_the_machine() -> None:
    assert f"`{CONTROL_ADDRESS}`" in (ROOT / "dev" / "README.md").read_text()
