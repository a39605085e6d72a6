"""Remember what a pure function returned for the very same objects: what is frozen and seen again needs no second reckoning."""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def by_identity(size: int) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Keep the results of the `size` latest calls, by the identity of their arguments, all positional.

    As functools.lru_cache, for arguments that are frozen but can't be hashed, or are dear to compare. It holds on to the
    arguments, so no identity is given to another object meanwhile. One thread calls it.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        known: OrderedDict[tuple[int, ...], tuple[tuple[object, ...], _R]] = OrderedDict()

        @wraps(function)
        def remembered(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            identity = tuple(map(id, args))
            found = known.get(identity)
            if found is not None:
                known.move_to_end(identity)
                return found[1]
            result = function(*args, **kwargs)
            known[identity] = (args, result)
            if len(known) > size:
                known.popitem(last=False)
            return result

        return remembered

    return decorate
