"""Two releases' sites on one branch, by the real mkdocs and mike, with the theme and the checks of the whole site."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import yaml

from dev.console import DevError
from dev.site import versions

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r'(?:href|src)="([^"]+)"')


class Checkout:
    """A repository with two pages that link to each other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
        nav = [{"Home": "index.md"}, {"Tasks": ["tasks/serve.md"]}]
        for name in ("extra_css", "exclude_docs"):
            del config[name]
        (folder / "docs" / "tasks").mkdir(parents=True)
        (folder / "mkdocs.yml").write_text(yaml.safe_dump({**config, "nav": nav, "hooks": []}))
        self.git("init", "--quiet", "--initial-branch=main")
        for name, value in (("user.name", "Somebody"), ("user.email", "somebody@example.com"), ("commit.gpgsign", "false")):
            self.git("config", name, value)
        self.write("of 0.1.0")
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "Begin")

    def git(self, *arguments: str) -> str:
        """Run git."""
        done = subprocess.run(["git", *arguments], cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def write(self, text: str, link: str = "tasks/serve.md#step-one") -> None:
        """Write both pages."""
        (self.folder / "docs" / "index.md").write_text(f"# Home\n\n{text}: [serve]({link})\n")
        (self.folder / "docs" / "tasks" / "serve.md").write_text("# Serve\n\n## Step one\n\n[Home](../index.md)\n")

    def published(self, folder: Path) -> Path:
        """The branch as a host serves it."""
        self.git("worktree", "add", "--quiet", "--force", "--detach", str(folder), versions.BRANCH)
        return folder


def broken(site: Path) -> list[str]:
    """Links between pages that lead nowhere, and what is asked of other hosts."""
    found = []
    for page in site.rglob("*.html"):
        for match in _LINK.finditer(page.read_text()):
            link, anchor = urldefrag(match[1])
            if ":" in link or link.startswith("//"):
                found += [f"{page.name}: {link}"] if match[0].startswith("src") else []
                continue
            target = page if not link else (page.parent / unquote(link))
            target = target / "index.html" if target.is_dir() else target
            # The theme gives its page for what is not found links from the root.
            if page.name == "404.html":
                continue
            if not target.is_file() or (anchor and f'id="{unquote(anchor)}"' not in target.read_text()):
                found.append(f"{page.relative_to(site)}: {match[1]}")
    return found


def test_each_release_keeps_its_site_and_the_latest_has_a_name(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "checkout")
    versions.add("0.1.0", checkout.folder)
    first = checkout.git("rev-parse", f"{versions.BRANCH}:0.1.0")
    checkout.write("of 0.2.0")
    versions.add("0.2.0", checkout.folder)

    site = checkout.published(tmp_path / "site")
    listed = json.loads((site / "versions.json").read_text())
    assert [(one["version"], one["aliases"]) for one in listed] == [("0.2.0", ["latest"]), ("0.1.0", [])]
    for folder, text in (("0.1.0", "0.1.0"), ("0.2.0", "0.2.0"), ("latest", "0.2.0")):
        assert f"of {text}:" in (site / folder / "index.html").read_text()
        assert (site / folder / "search" / "search_index.json").is_file() and not (site / folder).is_symlink()
    assert checkout.git("rev-parse", f"{versions.BRANCH}:0.1.0") == first, "an older site stays as it was"
    assert 'url=latest/"' in (site / "index.html").read_text().replace("index.html", "")
    assert '"provider": "mike"' in (site / "latest" / "index.html").read_text(), "the theme shows the selector"
    assert broken(site) == []
    assert checkout.git("branch", "--show-current") == "main"


def test_a_site_with_a_broken_link_is_no_version(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    checkout = Checkout(tmp_path / "checkout")
    checkout.write("of 0.1.0", "tasks/serve.md#nowhere")

    with pytest.raises(DevError, match="the site was not built"):
        versions.add("0.1.0", checkout.folder)
    assert "nowhere" in capfd.readouterr().err and checkout.git("branch", "--list", versions.BRANCH) == ""
    with pytest.raises(DevError, match="is no version"):
        versions.add("../x", checkout.folder)
