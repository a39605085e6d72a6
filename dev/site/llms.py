"""A hook of mkdocs: `llms.txt`, a list of all pages with what each is about, for programs that read the site (https://llmstxt.org)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Only where the site is built, and that has no need of it.
    from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).resolve().parents[2]
_OUTSIDE = "repository/"
_COMMENT, _LINK = re.compile(r"<!--.*?-->", re.DOTALL), re.compile(r"\[([^\]]+)\]\([^)]*\)")


def on_post_build(config: "MkDocsConfig") -> None:
    """Write the list beside the pages."""
    text = listing(config.site_name, config.site_description or "", config.nav or [])
    (Path(config.site_dir) / "llms.txt").write_text(text)


def listing(name: str, description: str, nav: list[Any]) -> str:
    """Each section of the navigation with its pages: title, link, and the first two sentences."""
    parts = [f"# {name}\n\n> {description}\n"]
    for section in nav:
        title, entry = next(iter(section.items()))
        lines = "".join(f"- [{heading}]({link}){told}\n" for heading, link, told in map(_entry, _pages(entry)))
        parts.append(f"## {title}\n\n{lines}")
    return "\n".join(parts)


def _pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for one in entry.values() if isinstance(entry, dict) else entry:
            yield from _pages(one)


def _entry(page: str) -> tuple[str, str, str]:
    path = ROOT / page.removeprefix(_OUTSIDE) if page.startswith(_OUTSIDE) else ROOT / "docs" / page
    heading, *paragraphs = _COMMENT.sub("", path.read_text()).strip().split("\n\n")
    prose = next((" ".join(_LINK.sub(r"\1", text).split()) for text in paragraphs if re.match(r"[A-Z`\[]", text)), "")
    sentences = re.findall(r".+?[.:](?= |$)", prose)[:2]
    told = f": {''.join(sentences).rstrip(':')}" if sentences else ""
    return heading.removeprefix("# "), re.sub(r"\.md$", ".html", page), told
