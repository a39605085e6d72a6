"""`python3 -m dev.lint.subject FILE`: check the subject of a commit message, as git's hook commit-msg has it in a file.

A subject is an order to the code base: "Add a field", not "Added" or "Adds a field". No program knows all verbs, so only what is
certain enough is refused; the list of exceptions grows by the verbs that are refused wrongly.
"""

import argparse
import re
from pathlib import Path

from dev.console import run_main, say

LIMIT = 72
# What git itself writes, or will squash away.
MACHINE = re.compile(r"(Merge|Revert|Reapply|fixup!|squash!|amend!) ")
SCISSORS = "# ------------------------ >8 ------------------------"
OTHER_FORM = re.compile(r"(?:ed|ing|(?<!s)s)$")
# Verbs that look like another form of a verb.
VERBS = frozenset(
    {"alias", "bias", "bleed", "breed", "bring", "canvas", "cling", "embed", "exceed", "feed", "focus", "heed", "need", "ping"}
    | {"proceed", "ring", "seed", "shed", "shred", "speed", "spring", "sting", "string", "succeed", "swing", "wed", "weed"}
)
NO_VERBS = frozenset(
    {"a", "all", "an", "each", "every", "it", "more", "new", "no", "one", "our", "some", "that", "the", "there", "these", "this"}
    | {"those", "we", "what", "when", "where", "which", "who"}
)


def faults(message: str) -> list[str]:
    """What is wrong with the subject, each fault with what to do; empty for a good one."""
    lines = _without_comments(message)
    subject = lines[0] if lines else ""
    if MACHINE.match(subject):
        return []
    word = re.match(r"[^\s:,]*", subject)
    found = _of_first_word(word[0] if word is not None else "")
    if len(subject) > LIMIT:
        found.append(f"it has {len(subject)} characters; at most {LIMIT}, the rest belongs into the body")
    if subject.endswith("."):
        found.append("a subject has no full stop")
    if len(lines) > 1 and lines[1].strip():
        found.append("leave the second line empty: git takes the subject up to there")
    return found


def _of_first_word(word: str) -> list[str]:
    if not word:
        return ["the subject is empty, or does not begin with a word"]
    small = word.lower()
    found = []
    if not word[0].isupper():
        found.append(f"begin with a capital letter: {word.capitalize()!r}, not {word!r}")
    if small in NO_VERBS:
        found.append(f"begin with a verb, as in 'Add' or 'Remove', not with {word!r}")
    elif OTHER_FORM.search(small) and small not in VERBS:
        found.append(f"use the imperative, as in 'Add' or 'Remove', not {word!r}")
    return found


def _without_comments(message: str) -> list[str]:
    """The lines that git keeps: no comments, nothing below the scissors, no empty lines in front."""
    kept = [line for line in message.split(SCISSORS, 1)[0].splitlines() if not line.startswith("#")]
    while kept and not kept[0].strip():
        del kept[0]
    return kept


def main() -> int:
    """Print the faults; 1 when there are any."""
    parser = argparse.ArgumentParser(prog="python3 -m dev.lint.subject", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, metavar="FILE", help="the commit message")
    found = faults(parser.parse_args().file.read_text(encoding="utf-8"))
    for fault in found:
        say(f"commit subject: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    run_main(main)
