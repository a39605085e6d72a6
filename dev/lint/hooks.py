"""`python -m dev.lint.hooks install|run`: git hooks from .pre-commit-config.yaml, with pre-commit or without.

`install` leaves the work to the command pre-commit where the machine has it. Elsewhere it writes two small hooks that come back
here: `run STAGE` reads the same file and runs what it names for that stage. Unlike pre-commit it does not put changes aside that
are not staged, so it checks files as they are.
"""

import argparse
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from dev.console import DevError, run_main, say

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ".pre-commit-config.yaml"
STAGES = ("pre-commit", "commit-msg")
_MARK = "# Written by `make hooks`."
_SCRIPT = f"""#!/bin/sh
{_MARK} Delete this file to be rid of it; `git commit --no-verify` passes it by once.
[ -x .venv/bin/python ] || {{ echo "this hook needs .venv: run make venv" >&2; exit 1; }}
exec .venv/bin/python -m dev.lint.hooks run STAGE "$@"
"""


def install(root: Path) -> None:
    """Have git run the hooks in this checkout. Raises DevError rather than replace what somebody else has put there."""
    if (found := shutil.which("pre-commit")) is not None:
        subprocess.run([found, "install"], cwd=root, check=True)
        return
    if _git(root, "config", "--get", "core.hooksPath"):
        raise DevError(
            f"core.hooksPath is set: have the hooks there call `.venv/bin/python -m dev.lint.hooks run {'|'.join(STAGES)}`"
        )
    folder = root / _git(root, "rev-parse", "--git-path", "hooks")
    folder.mkdir(parents=True, exist_ok=True)
    for stage in STAGES:
        hook = folder / stage
        if hook.exists() and _MARK not in hook.read_text(errors="replace"):
            raise DevError(f"{hook} is not ours; move it away, or have it call `.venv/bin/python -m dev.lint.hooks run {stage}`")
    for stage in STAGES:
        hook = folder / stage
        hook.write_text(_SCRIPT.replace("STAGE", stage))
        hook.chmod(0o755)
        say(f"wrote {hook}")


def run(root: Path, stage: str, arguments: list[str]) -> int:
    """Run the hooks of a stage; 1 when one fails. Those that read Python files are left out when none is staged."""
    staged = _git(root, "diff", "--cached", "--name-only", "--diff-filter=ACMR", "-z").split("\0")[:-1]
    python = [path for path in staged if path.endswith(".py")]
    failed = 0
    for hook in hooks(root, stage):
        files = python if hook.get("types") == ["python"] else staged
        if stage == "pre-commit" and not files:
            continue
        passed = () if hook.get("pass_filenames") is False else arguments if stage == "commit-msg" else files
        done = subprocess.run([*shlex.split(hook["entry"]), *passed], cwd=root, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            failed = 1
            say(f"{hook['name']} failed:\n{done.stdout}{done.stderr}".rstrip())
    return failed


def hooks(root: Path, stage: str) -> list[dict[str, Any]]:
    """The hooks that the configuration has for a stage. Raises DevError for what only pre-commit itself can run."""
    document = yaml.safe_load((root / CONFIG).read_text())
    found = []
    for repository in document["repos"]:
        for hook in repository["hooks"]:
            if repository["repo"] != "local" or hook["language"] != "system":
                raise DevError(f"{CONFIG}: {hook['id']} is not a local hook of language system")
            if stage in hook.get("stages", ["pre-commit"]):
                found.append(hook)
    return found


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    # `config --get` ends with 1 for what is not set.
    if done.returncode not in {0, 1}:
        raise DevError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.rstrip("\n")


def main() -> int:
    """Install the hooks, or run those of one stage."""
    parser = argparse.ArgumentParser(prog="python -m dev.lint.hooks", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="have git run them in this checkout")
    of_run = commands.add_parser("run", help="what the installed hooks call")
    of_run.add_argument("stage", choices=STAGES)
    of_run.add_argument("arguments", nargs="*", help="what git gives to the hook")
    arguments = parser.parse_args()
    if arguments.command == "run":
        return run(ROOT, arguments.stage, arguments.arguments)
    install(ROOT)
    return 0


if __name__ == "__main__":
    run_main(main)
