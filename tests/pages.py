"""What the documentation's pages are made of: links, headings, blocks of code and the commands in them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "inference-operator"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("dev/*.md"), CHART / "README.md"])
_FENCED = re.compile(r"^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
_SHELLS = frozenset({"", "sh", "bash"})


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code on a page."""

    page: Path
    language: str
    text: str

    @property
    def where(self) -> str:
        return self.page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of code, in order, without their indentation."""
    for match in _FENCED.finditer(page.read_text()):
        text = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        yield Block(page, match["language"], text)


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return _FENCED.sub("", page.read_text())


def commands(page: Path) -> Iterator[str]:
    """The lines of shells, with those that go on joined, and prompts taken off."""
    for block in blocks(page):
        if block.language in _SHELLS:
            yield from (line.removeprefix("$ ").strip() for line in block.text.replace("\\\n", " ").splitlines())


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Path and anchor of each link that stays in the repository; either may be empty."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            yield path, anchor


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        words = re.sub(r"\]\([^)]*\)", "", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


def manifests() -> list[tuple[str, dict[str, Any]]]:
    """Each object of Kubernetes that a page or an example shows, with where it stands."""
    found = [
        (path.name, one) for path in sorted((ROOT / "examples" / "manifests").glob("*.yaml")) for one in _objects(path.read_text())
    ]
    return found + [
        (block.where, one) for page in PAGES for block in blocks(page) if block.language == "yaml" for one in _objects(block.text)
    ]


def _objects(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))
