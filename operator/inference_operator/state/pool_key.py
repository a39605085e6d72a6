"""Names a model's warm pool in queues that also hold jobs."""

from inference_operator.state.objects import Key

_MARK = "model/"


def pool_key(model: Key) -> Key:
    """The key that stands for a model's pool where keys of jobs stand; no job can have it, since names have no slash."""
    return Key(model.namespace, _MARK + model.name)


def model_of(key: Key) -> Key | None:
    """The model whose pool a key stands for; None for a job's key."""
    return Key(key.namespace, key.name.removeprefix(_MARK)) if key.name.startswith(_MARK) else None
