"""Texts that others have written, as a terminal may show them: pure.

Names, conditions, events and logs hold what a job's author, a model or a server has chosen. A terminal obeys what it is sent: it
moves its cursor, sets its title, turns a line around. So what it would obey is shown as an escape.
"""

import re
import unicodedata

# They join letters in scripts and emoji, and a terminal only draws them.
_JOINERS = "\u200c\u200d"
_OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_ASCII = re.compile(r"[\x20-\x7e]*")


def is_plain(text: str) -> bool:
    """Whether nothing in a text is obeyed, but for ends of lines and tabs."""
    return _ASCII.fullmatch(text) is not None or not any(_is_obeyed(one, "\n\t") for one in text)


def block(text: str) -> str:
    """A text of one or more lines."""
    return _escaped(text, "\n\t")


def line(text: str) -> str:
    """A text that stays in its line."""
    return _escaped(text, "\t")


def json(text: str) -> str:
    """A document in JSON, of the same values."""
    if _ASCII.fullmatch(text) is not None:
        return text
    return "".join(_in_json(one) if _is_obeyed(one, "\n\t") else one for one in text)


def _is_obeyed(one: str, kept: str) -> bool:
    return unicodedata.category(one) in _OBEYED and one not in kept and one not in _JOINERS


def _escaped(text: str, kept: str) -> str:
    if _ASCII.fullmatch(text) is not None:
        return text
    return "".join(one.encode("unicode_escape").decode() if _is_obeyed(one, kept) else one for one in text)


def _in_json(one: str) -> str:
    code = one.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))
