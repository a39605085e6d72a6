"""`python -m dev.site [ARGUMENT ...]`: build the site into build/site; arguments are those of mkdocs, such as `serve`.

`python -m dev.site release VERSION` adds a version to those on the branch gh-pages, as a commit there that nobody has pushed.
"""

import sys

from dev.console import run_main
from dev.site.tools import BUILD, ROOT, run
from dev.site.versions import add


def main() -> int:
    """Do as the arguments say; 1 when it fails."""
    match sys.argv[1:]:
        case ["release", version]:
            add(version, ROOT)
        case arguments:
            run("mkdocs", *(arguments or BUILD), folder=ROOT)
    return 0


if __name__ == "__main__":
    run_main(main)
