"""What `push` does in its helper pod: where files go, and the programs that write them. Pure."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from inference_client.errors import InvalidError
from inference_client.volume_pod import MOUNT


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file comes to lie: a path on a claim."""

    claim: str
    path: PurePosixPath

    @property
    def uri(self) -> str:
        """As an InferenceModel names it."""
        return f"pvc://{self.claim}/{self.path}"

    @property
    def inside(self) -> str:
        """The path in the pod."""
        return str(MOUNT / self.path)


def place(target: str, files: list[str]) -> tuple[Place, ...]:
    """Where each file goes: `CLAIM/PATH` or `pvc://CLAIM/PATH`; several files, or a path with `/` at its end, go into a folder."""
    claim, _, path = target.removeprefix("pvc://").partition("/")
    folder = path.endswith("/") or not path or len(files) > 1
    inside = PurePosixPath(path)
    if not claim or "://" in target.removeprefix("pvc://"):
        raise InvalidError(f"{target!r} is no place on a claim: write CLAIM/PATH")
    if ".." in inside.parts or inside.is_absolute():
        raise InvalidError(f"{target!r} leaves the claim: name the path from the volume's root, without '..'")
    if folder:
        return tuple(Place(claim, inside / PurePosixPath(one).name) for one in files)
    return (Place(claim, inside),)


def writing(place_: Place, size: int) -> list[str]:
    """The command that writes its input beside the file's place.

    It counts its bytes, since not every API server tells a command that its input has ended. Names are arguments, and never part
    of the script.
    """
    script = 'mkdir -p "$(dirname "$1")" && head -c "$2" > "$1.part"'
    return ["sh", "-c", script, "push", place_.inside, str(size)]


def digesting(place_: Place) -> list[str]:
    """The command that prints the digest of what was written."""
    return ["sha256sum", f"{place_.inside}.part"]


def existing(place_: Place) -> list[str]:
    """The command that prints `yes` where there is a file already."""
    return ["sh", "-c", 'if [ -e "$1" ]; then echo yes; fi', "push", place_.inside]


def finishing(place_: Place) -> list[str]:
    """The command that puts what was written to its place, all at once."""
    return ["mv", f"{place_.inside}.part", place_.inside]


def cleaning(place_: Place) -> list[str]:
    """The command that removes what was not written whole."""
    return ["rm", "-f", f"{place_.inside}.part"]
