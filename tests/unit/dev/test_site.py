"""What the site has beside its pages."""

import re
from pathlib import Path

import yaml

from dev.site.llms import listing
from dev.site.versions import names

ROOT = Path(__file__).resolve().parents[3]
NAV = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]


def test_a_release_candidate_is_not_the_latest() -> None:
    assert (names("0.2.0"), names("0.2.0-rc.1")) == (("latest",), ())


def test_the_list_for_programs_has_each_page_once_with_its_title_and_what_it_is_about() -> None:
    text = listing("inference-operator", "Run it", NAV)
    entries = re.findall(r"^- \[(.+?)\]\((\S+)\)(: .+)?$", text, re.MULTILINE)
    pages = re.findall(r"[\w/.-]+\.md", yaml.safe_dump(NAV, width=1000))

    assert text.startswith("# inference-operator\n\n> Run it\n\n## Home\n\n- [")
    assert sorted(link for _, link, _ in entries) == sorted(re.sub(r"\.md$", ".html", page) for page in pages)
    assert [title for title, *_ in entries if title.startswith("#") or "\n" in title] == []
    # A decision's title says it, and a page of tables alone has no sentence.
    assert [link for _, link, told in entries if not told and not link.startswith("adr/")] == ["reference/metrics.html"]
