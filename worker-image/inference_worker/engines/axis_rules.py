"""Which axes of which input each ONNX operator mixes (onnx.ai/onnx/operators).

An operator mixes an axis when an answer at one place of it depends on a value at another, or on the place itself.
"""

from collections.abc import Callable, Iterable

from inference_worker.engines.axis_operator import ROWS, Operator, has_rows

_ELEMENTWISE_SOFTMAX_OPSET = 13
"""Before, softmax took its axis and all that follow as one (github.com/onnx/onnx/blob/main/docs/Changelog.md#Softmax-13)."""

_UNBOUNDED = 2**20
"""An end that no run reaches: exporters write 10^9, 2^31 - 1 or more for all of an axis."""

Mixed = Iterable[tuple[int, Iterable[int]]]
"""Places of inputs, each with the axes of it that are mixed; negative axes count from the end."""

Rule = Callable[[Operator], Mixed]


def _axis(default: int, attribute: str = "axis") -> Rule:
    return lambda op: [(0, [op.at.get(attribute, default)])]


def _from(first: int, *places: int) -> Rule:
    return lambda op: [(place, range(first, op.rank(place))) for place in places or (0,)]


def _reduction(op: Operator) -> Mixed:
    axes = op.integers(1, "axes")
    if axes is None and op.name(1):
        return ()
    whole = [] if op.at.get("noop_with_empty_axes") else range(op.rank())
    return [(0, axes or whole)]


def _softmax(op: Operator) -> Mixed:
    if op.opset >= _ELEMENTWISE_SOFTMAX_OPSET:
        return [(0, [op.at.get("axis", -1)])]
    axis = op.at.get("axis", 1)
    return [(0, [axis] if op.shape(0) is None else range(axis % op.rank(), op.rank()))]


def _normalisation(op: Operator) -> Mixed:
    return [(0, range(op.at.get("axis", -1), 0) if op.at.get("axis", -1) < 0 else range(op.at["axis"], op.rank()))]


def _cumulative(op: Operator) -> Mixed:
    return [(0, op.integers(1, "axis") or ())]


def _product(one: int, other: int) -> Rule:
    return lambda op: [(one, [-1]), (other, [-2 if op.rank(other) > 1 else -1])]


def _gemm(op: Operator) -> Mixed:
    return [(0, [0 if op.at.get("transA") else -1]), (1, [-1 if op.at.get("transB") else -2])]


def _einsum(op: Operator) -> Mixed:
    terms, arrow, answer = op.at["equation"].decode().replace(" ", "").partition("->")
    for place, term in enumerate(terms.split(",")):
        before, _dots, after = term.partition("...")
        labels = dict(enumerate(before)) | {axis - len(after): label for axis, label in enumerate(after)}
        # Without an answer of its own, what stands once is kept.
        kept = answer if arrow else [label for label in terms if terms.count(label) == 1]
        yield place, [axis for axis, label in labels.items() if label not in kept]


def _window(image: int, weight: int | None) -> Rule:
    """Kernels that go over the axes from 2 on; with weights, all channels of a group too."""

    def mixed(op: Operator) -> Mixed:
        shape = op.shape(weight) if weight is not None else None
        kernel = op.at.get("kernel_shape") or (shape[2:] if shape else [None] * max(op.rank(image) - 2, 0))
        yield image, [axis for axis, size in enumerate(kernel, start=2) if size != 1]
        # A group of one channel mixes none.
        if weight is not None and (shape is None or len(shape) < 2 or shape[1] != 1):
            yield image, [1]

    return mixed


def _training(op: Operator) -> Mixed:
    if op.at.get("training_mode") or len([name for name in op.node.output if name]) > 1:
        yield 0, [axis for axis in range(op.rank()) if axis != 1]


def _recurrent(op: Operator) -> Mixed:
    return [(0, [1 if op.at.get("layout") else 0, 2])]


def _flat(op: Operator) -> Mixed:
    return [(0, [op.at["axis"]] if "axis" in op.at else range(op.rank()))]


def _picked(op: Operator) -> Mixed:
    """Places that have nothing of the rows are the same rows for everybody."""
    return [(0, [op.at.get("axis", 0)])] if op.same_for_all(1) else ()


def _picked_in_depth(op: Operator) -> Mixed:
    first, depth = op.at.get("batch_dims", 0), (op.shape(1) or (None,))[-1]
    return [(0, range(first, first + depth))] if depth is not None and op.same_for_all(1) else ()


def _slice(op: Operator) -> Mixed:
    starts, ends = op.integers(1, "starts"), op.integers(2, "ends")
    if starts is None or ends is None:
        return
    axes = op.integers(3, "axes") or range(len(starts))
    steps = op.integers(4, "steps") or [1] * len(starts)
    yield (
        0,
        [
            axis
            for axis, start, end, step in zip(axes, starts, ends, steps, strict=False)
            # Parts of whole runs are what was put side by side.
            if start % ROWS or step != 1 or (end % ROWS and end < _UNBOUNDED)
        ],
    )


def _split(op: Operator) -> Mixed:
    """Parts of whole runs are what was put side by side; others cut a run."""
    axis = op.at.get("axis", 0)
    return () if all(has_rows(shape, axis) for shape in op.answers()) else [(0, [axis])]


def _concat(op: Operator) -> Mixed:
    """What stands beside rows and is none moves them."""
    axis, places = op.at.get("axis", 0), range(len(op.node.input))
    if all(op.counts(place, axis) for place in places if op.shape(place) is not None):
        return ()
    return [(place, [axis]) for place in places]


def _pad(op: Operator) -> Mixed:
    pads, axes = op.integers(1, "pads"), op.integers(3, "axes")
    if pads is None:
        return
    half = len(pads) // 2
    yield 0, [axis for place, axis in enumerate(axes or range(half)) if pads[place] or pads[place + half]]


def _resize(op: Operator) -> Mixed:
    before, after = op.shape(0), op.answers()[0]
    return [(0, [axis for axis, sizes in enumerate(zip(before or (), after or (), strict=False)) if sizes[0] != sizes[1]])]


def _scan(op: Operator) -> Mixed:
    scanned = op.at["num_scan_inputs"]
    states = len(op.node.input) - scanned
    body = op.at["body"]
    same = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}
    passed = [same.get(after.name, after.name) == before.name for after, before in zip(body.output, body.input, strict=False)]
    if all(passed[:states]):
        # What is handed on as it came is no memory.
        return
    axes = op.at.get("scan_input_axes") or [0] * scanned
    yield from ((states + place, [axis]) for place, axis in enumerate(axes))


def _attention(op: Operator) -> Mixed:
    return [(place, range(1, op.rank(place))) for place in range(min(3, len(op.node.input)))]


_REDUCTIONS = ("Max", "Min", "Mean", "Sum", "SumSquare", "Prod", "L1", "L2", "LogSum", "LogSumExp")
HIDING: dict[str, Rule] = {
    **{f"Reduce{kind}": _reduction for kind in _REDUCTIONS},
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(("ArgMax", "ArgMin"), _axis(0)),
    **dict.fromkeys(("TopK", "LpNormalization"), _axis(-1)),
    **dict.fromkeys(("CumSum", "CumProd"), _cumulative),
    **dict.fromkeys(("GlobalMaxPool", "GlobalLpPool"), _from(2)),
    "MeanVarianceNormalization": lambda op: [(0, op.at.get("axes", (0, 2, 3)))],
}
"""What no trial may show: a largest value, say, or a sum that is compared. An axis that nothing is known of counts as the rows."""

RULES: dict[str, Rule] = {
    **HIDING,
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"), _normalisation),
    **dict.fromkeys(("InstanceNormalization", "GlobalAveragePool", "MaxRoiPool", "GridSample"), _from(2)),
    **dict.fromkeys(("GroupNormalization", "DepthToSpace", "SpaceToDepth", "STFT"), _from(1)),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "MaxUnpool"), _window(0, None)),
    **dict.fromkeys(("Conv", "ConvInteger", "FusedConv", "ConvTranspose", "DeformConv"), _window(0, 1)),
    **dict.fromkeys(("MatMul", "MatMulInteger"), _product(0, 1)),
    **dict.fromkeys(("Gemm", "FusedGemm"), _gemm),
    **dict.fromkeys(("RNN", "LSTM", "GRU"), _recurrent),
    **dict.fromkeys(("Attention", "MultiHeadAttention"), _attention),
    **dict.fromkeys(("Gather", "GatherElements", "ScatterElements", "Scatter"), _picked),
    **dict.fromkeys(("GatherND", "ScatterND"), _picked_in_depth),
    **dict.fromkeys(("Unique", "Compress"), _flat),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "QLinearConv": _window(0, 3),
    "QLinearMatMul": _product(0, 3),
    "ArrayFeatureExtractor": lambda op: [(0, [-1])] if op.same_for_all(1) else (),
    "BatchNormalization": _training,
    "Concat": _concat,
    "DFT": lambda op: [(0, op.integers(2, "axis") or [op.at.get("axis", 1 if op.opset < 20 else -2)])],
    "Det": lambda _: [(0, (-2, -1))],
    "Einsum": _einsum,
    "LRN": lambda _: [(0, [1])],
    "NonMaxSuppression": lambda _: [(0, [1]), (1, [1, 2])],
    "NonZero": _from(0),
    "Normalizer": _axis(-1),
    "Pad": _pad,
    "ReverseSequence": _axis(0, "time_axis"),
    "Scan": _scan,
    "Slice": _slice,
    "Split": _split,
    # A word that is left out moves those behind it.
    "StringNormalizer": lambda op: [(0, [-1])] if op.at.get("stopwords") else (),
    "TfIdfVectorizer": lambda _: [(0, [-1])],
    "Trilu": lambda _: [(0, (-2, -1))],
}
"""Operators that mix axes; what is not here keeps each row to itself, or is left to the trials."""

DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})


def mixed(op: Operator) -> bool:
    """Whether an operator goes over the rows of what has something of a caller's."""
    rule = RULES.get(op.node.op_type) if op.node.domain in DOMAINS else None
    if rule is None:
        return False
    try:
        return any(op.caller(place) and any(_over(op, place, axis) for axis in axes) for place, axes in rule(op))
    except (KeyError, IndexError, TypeError, ValueError):
        # The runtime took it; what its attributes mean is not for this table to tell.
        return False


def _over(op: Operator, place: int, axis: int) -> bool:
    shape = op.shape(place)
    if op.node.op_type in HIDING and (axis == 0 or (shape is not None and axis == -len(shape))):
        return shape is None or shape[0] is None or has_rows(shape, 0)
    return has_rows(shape, axis)
