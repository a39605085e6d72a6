"""A hook of mkdocs: what pages link to outside docs/, such as the changelog or an example, becomes a part of the site.

In the site such a file lies below `repository/`, at its path in the repository.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
# Pages of the repository that the navigation names; other files come along when a page links to them.
PAGES = ("CHANGELOG.md", "RELEASING.md", "SECURITY.md", "charts/inference-operator/README.md", "dev/README.md")
_DOCS, _OUTSIDE = "docs/", "repository/"
_LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that pages name."""
    pages = {_in_repository(file.src_uri): file.content_string for file in files.documentation_pages()}
    pages |= {path: (ROOT / path).read_text() for path in PAGES}
    named = {_target(page, match[2]) for page, text in pages.items() for match in _LINK.finditer(text)}
    for path in sorted({*PAGES, *named}):
        if not path.startswith(_DOCS) and (ROOT / path).is_file():
            files.append(File.generated(config, _in_site(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Lead links between docs/ and the rest of the repository to where both are in the site."""
    here = _in_repository(page.file.src_uri)

    def led(match: re.Match[str]) -> str:
        target = _in_site(_target(here, match[2]))
        return match[1] + posixpath.relpath(target, posixpath.dirname(page.file.src_uri)) + match[3]

    return _LINK.sub(led, markdown)


def _target(page: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _in_site(path: str) -> str:
    return path.removeprefix(_DOCS) if path.startswith(_DOCS) else _OUTSIDE + path


def _in_repository(src_uri: str) -> str:
    return src_uri.removeprefix(_OUTSIDE) if src_uri.startswith(_OUTSIDE) else _DOCS + src_uri
