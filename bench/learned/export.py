"""`python -m bench.learned.export FILE [WINDOWS]`: train the policy of `make bench NAME=learned` and write it as ONNX.

What the operator asks beside its passes if `policy.path` names it. It brings no gain (docs/measurements.md); it is there to be
watched.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.ensemble import HistGradientBoostingClassifier

from bench.learned.run import WINDOWS, labelled, untrained
from inference_operator.shadow.features import NAMES


def exported(model: HistGradientBoostingClassifier, threshold: float) -> bytes:
    """The trees as one operator of ONNX's own, in double precision as they were learned, and a sigmoid after it."""
    trees = [tree for (tree,) in model._predictors]  # noqa: SLF001 -- sklearn has no other way to the trees
    nodes: dict[str, list[int | str]] = {
        name: [] for name in ("treeids", "nodeids", "featureids", "modes", "truenodeids", "falsenodeids")
    }
    thresholds: list[float] = []
    leaves: list[tuple[int, int, float]] = []
    for number, tree in enumerate(trees):
        for id_, node in enumerate(tree.nodes):
            leaf = bool(node["is_leaf"])
            for name, value in (
                ("treeids", number), ("nodeids", id_), ("featureids", 0 if leaf else int(node["feature_idx"])),
                ("modes", "LEAF" if leaf else "BRANCH_LEQ"), ("truenodeids", 0 if leaf else int(node["left"])),
                ("falsenodeids", 0 if leaf else int(node["right"])),
            ):  # fmt: skip
                nodes[name].append(value)
            thresholds.append(0.0 if leaf else float(node["num_threshold"]))
            if leaf:
                leaves.append((number, id_, float(node["value"])))
    attributes: dict[str, Any] = {f"nodes_{name}": values for name, values in nodes.items()}
    ensemble = helper.make_node(
        "TreeEnsembleRegressor", ["rows"], ["raw"], domain="ai.onnx.ml", n_targets=1,
        **attributes, nodes_values_as_tensor=_doubles(thresholds),
        target_treeids=[tree for tree, _, _ in leaves], target_nodeids=[node for _, node, _ in leaves],
        target_ids=[0] * len(leaves), target_weights_as_tensor=_doubles([weight for _, _, weight in leaves]),
        base_values_as_tensor=_doubles(np.ravel(model._baseline_prediction).tolist()),  # noqa: SLF001
    )  # fmt: skip
    graph = helper.make_graph(
        [ensemble, helper.make_node("Sigmoid", ["raw"], ["on_time"])],
        "policy",
        [helper.make_tensor_value_info("rows", TensorProto.DOUBLE, [None, len(NAMES)])],
        [helper.make_tensor_value_info("on_time", TensorProto.FLOAT, [None, 1])],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    helper.set_model_props(proto, {"features": "\n".join(NAMES), "threshold": repr(threshold)})
    onnx.checker.check_model(proto)
    data: bytes = proto.SerializeToString()
    return data


def _doubles(values: list[float]) -> Any:
    return numpy_helper.from_array(np.array(values, dtype=np.float64))


def main(path: Path, windows: int) -> None:
    """Train on labelled windows and write the file."""
    rows, labels = labelled(range(1000, 1000 + windows))
    data = exported(untrained().fit(rows, labels), threshold=0.02)
    path.write_bytes(data)
    print(f"{path}: {len(data)} bytes, {len(labels)} rows")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else WINDOWS)
