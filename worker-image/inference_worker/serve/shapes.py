"""The shapes in a refusal: a caller learns which input it sent how, and what the model takes there."""

from inference_worker.engines.engine import Tensors, TensorSpec
from inference_worker.errors import RequestError
from inference_worker.serve.ask import Signature, bad

_INPUTS_NAMED = 4


def with_shapes(error: RequestError, feeds: Tensors, signature: Signature) -> RequestError:
    """The refusal of a model's runtime, with the inputs whose sizes its caller chose; those whose sizes disagree come first."""
    chosen = [spec for name in feeds if None in (spec := signature.inputs[name]).shape]
    disagreeing = _disagreeing(feeds, chosen)
    named = (disagreeing or chosen)[:_INPUTS_NAMED]
    if not named:
        return error
    sent = ", ".join(f"input {spec.name!r}: shape {list(feeds[spec.name].shape)} where it takes {_takes(spec)}" for spec in named)
    hint = "; equal names are equal sizes" if disagreeing else ""
    return bad(f"{error.message} ({sent}{hint})")


def _disagreeing(feeds: Tensors, specs: list[TensorSpec]) -> list[TensorSpec]:
    """The inputs that give one named size several values."""
    sizes: dict[str, set[int]] = {}
    for spec in specs:
        for name, size in zip(spec.names, feeds[spec.name].shape, strict=False):
            if name is not None:
                sizes.setdefault(name, set()).add(size)
    several = {name for name, found in sizes.items() if len(found) > 1}
    return [spec for spec in specs if several.intersection(spec.names)]


def _takes(spec: TensorSpec) -> str:
    """The model's shape: sizes, names of free sizes where the file gives them, else -1."""
    names = spec.names or (None,) * len(spec.shape)
    sizes = (name or "-1" if size is None else str(size) for size, name in zip(spec.shape, names, strict=True))
    return f"[{', '.join(sizes)}]"
