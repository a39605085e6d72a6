"""What the settings say, as the source of a Lua filter has it. Nothing of it is ever code."""

from collections.abc import Mapping, Sequence


def constants(values: Mapping[str, object]) -> str:
    """The lines that a source begins with."""
    return "".join(f"local {name} = {literal(value)}\n" for name, value in values.items())


def places(names: Sequence[str]) -> Mapping[str, object]:
    """A list of names and prefixes, for PLACES."""
    whole = [name for name in names if not name.endswith("*")]
    prefixes = [name[:-1] for name in names if name.endswith("*")]
    return {"all": "" in prefixes, "names": dict.fromkeys(whole, True), "prefixes": prefixes}


# Whether a namespace is among those of `places`.
PLACES = """
local function has(places, namespace)
  if places.all or places.names[namespace] then return true end
  for _, prefix in ipairs(places.prefixes) do
    if namespace:sub(1, #prefix) == prefix then return true end
  end
  return false
end
"""


def literal(value: object) -> str:
    """A value as Lua's source has it. Raises TypeError for what it has no form for."""
    match value:
        case None:
            return "nil"
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return '"' + "".join(chr(b) if chr(b).isalnum() and b < 128 else f"\\{b:03}" for b in value.encode()) + '"'
        case Mapping():
            return "{" + ", ".join(f"[{literal(key)}] = {literal(one)}" for key, one in value.items()) + "}"
        case Sequence():
            return "{" + ", ".join(map(literal, value)) + "}"
    raise TypeError(type(value).__name__)
