"""Every way in which a load can fail has a reason of its own, one sentence and one cure, in words of the model's author."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto, TensorProto, helper, numpy_helper

from inference_protocol.reasons import PERMANENT
from inference_protocol.reasons import WorkerReason as R
from inference_worker import fetch
from inference_worker.engines import external_data, onnx_faults
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.errors import WorkerError
from tests.process.models import FLOAT, INT64, STRING, tensor
from tests.unit.worker.conftest import STEADY

MODELS = Path(__file__).resolve().parents[2] / "models"
CPU = ("CPUExecutionProvider",)
IDENTITY = [helper.make_node("Identity", ["x"], ["y"])]


def made(
    nodes: list[NodeProto],
    *,
    kind: int = FLOAT,
    out: int | None = None,
    weights: list[TensorProto] | None = None,
    opset: int = 17,
    ir: int = 8,
    domains: tuple[tuple[str, int], ...] = (),
    rows: int | str = "N",
) -> bytes:
    graph = helper.make_graph(nodes, "g", [tensor("x", kind, [rows, 2])], [tensor("y", out or kind, [rows, 2])], weights or [])
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(*each) for each in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir).SerializeToString()


def normaliser(locale: str) -> bytes:
    return made(
        [helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="LOWER", locale=locale)], kind=STRING, rows=1
    )


def short() -> bytes:
    weight = numpy_helper.from_array(np.ones((2, 2), np.float32), "w")
    weight.raw_data = b"123"
    return made([helper.make_node("MatMul", ["x", "w"], ["y"])], weights=[weight])


def outside(location: str) -> bytes:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[2, 2], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "16")):
        weight.external_data.add(key=key, value=value)
    return made([helper.make_node("MatMul", ["x", "w"], ["y"])], weights=[weight])


CASES: dict[str, tuple[bytes, R, tuple[str, ...]]] = {
    "a newer opset": (made(IDENTITY, opset=99), R.MODEL_TOO_NEW, ("99", "28", "ai.onnx")),
    "a newer IR": (made(IDENTITY, ir=99), R.MODEL_TOO_NEW, ("99", "14")),
    "a newer opset of a domain": (
        made([*IDENTITY, helper.make_node("Binarizer", ["x"], ["z"], domain="ai.onnx.ml")], domains=(("ai.onnx.ml", 77),)),
        R.MODEL_TOO_NEW,
        ("77", "5", "ai.onnx.ml"),
    ),
    "an operator of a library": (
        made([helper.make_node("Foo", ["x"], ["y"], domain="com.acme")], domains=(("com.acme", 1),)),
        R.MODEL_OPERATOR_UNSUPPORTED,
        ("Foo", "com.acme"),
    ),
    "an operator that nobody has": (made([helper.make_node("Foo", ["x"], ["y"])]), R.MODEL_OPERATOR_UNSUPPORTED, ("Foo", "17")),
    "a domain without a version": (
        made([helper.make_node("Foo", ["x"], ["y"], domain="com.acme")]),
        R.MODEL_OPERATOR_UNSUPPORTED,
        ("com.acme",),
    ),
    "an operator without a kernel": (
        made([helper.make_node("Add", ["x", "x"], ["y"], name="sum")], kind=TensorProto.BFLOAT16),
        R.MODEL_OPERATOR_UNSUPPORTED,
        ("Add", "sum"),
    ),
    "types that differ": (made([helper.make_node("Add", ["x", "x"], ["y"])], out=INT64), R.MODEL_INVALID, ("(y)", "int64")),
    "an input that is nowhere": (made([helper.make_node("Add", ["x", "q"], ["y"])]), R.MODEL_INVALID, ("'q'",)),
    "too few inputs": (
        made([helper.make_node("Add", ["x"], ["y"], name="one")]),
        R.MODEL_INVALID,
        ("'one'", "Add", "input size 1"),
    ),
    "a circle": (
        made(
            [
                helper.make_node("Add", ["x", "b"], ["a"]),
                helper.make_node("Identity", ["a"], ["b"]),
                helper.make_node("Identity", ["b"], ["y"]),
            ]
        ),
        R.MODEL_INVALID,
        ("not acyclic",),
    ),
    "one name twice": (made([*IDENTITY, *IDENTITY]), R.MODEL_INVALID, ("(y)",)),
    "shapes that do not fit": (
        made([helper.make_node("MatMul", ["x", "x"], ["y"], name="product")], rows=3),
        R.MODEL_INVALID,
        ("'product'", "MatMul", "Incompatible dimensions"),
    ),
    "a type without arithmetic": (made(IDENTITY, kind=TensorProto.COMPLEX64), R.MODEL_TYPE_UNSUPPORTED, ("complex64",)),
    "a type without a name on the wire": (
        made(IDENTITY, kind=TensorProto.FLOAT8E4M3FN, opset=19, ir=9),
        R.MODEL_TYPE_UNSUPPORTED,
        ("'x'", "float8e4m3fn"),
    ),
    "a locale that is not there": (normaliser("xx_YY"), R.MODEL_LOCALE_MISSING, ("xx_YY", "en_US")),
    "weights that are cut off": (short(), R.MODEL_CORRUPT, ("'w'", "3 bytes", "16 bytes")),
    "weights in a file that is not there": (outside("gone.bin"), R.MODEL_DATA_MISSING, ("gone.bin",)),
    "half a file": (made(IDENTITY)[:-20], R.MODEL_CORRUPT, ("whole",)),
    "nothing": (b"", R.MODEL_CORRUPT, ("empty",)),
    "a page": (b"<html>404</html>", R.MODEL_FORMAT_UNSUPPORTED, ("HTML",)),
    "PyTorch": (b"PK\x03\x04" + bytes(60), R.MODEL_FORMAT_UNSUPPORTED, ("PyTorch",)),
    "Keras": (b"\x89HDF\r\n\x1a\n" + bytes(60), R.MODEL_FORMAT_UNSUPPORTED, ("Keras",)),
    "GGUF": (b"GGUF" + bytes(60), R.MODEL_FORMAT_UNSUPPORTED, ("GGUF",)),
    "TensorFlow Lite": (b"\x1c\0\0\0TFL3" + bytes(60), R.MODEL_FORMAT_UNSUPPORTED, ("TensorFlow Lite",)),
    "safetensors": ((60).to_bytes(8, "little") + b'{"w": {}}' + bytes(60), R.MODEL_FORMAT_UNSUPPORTED, ("safetensors",)),
    "a pickle": (b"\x80\x04\x95" + bytes(60), R.MODEL_FORMAT_UNSUPPORTED, ("pickle",)),
    "a file of the public reports: an operator of an extension": (
        (MODELS / "customop.onnx").read_bytes(),
        R.MODEL_OPERATOR_UNSUPPORTED,
        ("StringUpper", "ai.onnx.contrib"),
    ),
    "a file of the public reports: a sequence": (
        (MODELS / "sequence.onnx").read_bytes(),
        R.MODEL_TYPE_UNSUPPORTED,
        ("'s'", "sequence"),
    ),
    "a file of the public reports: an optional": (
        (MODELS / "optional.onnx").read_bytes(),
        R.MODEL_TYPE_UNSUPPORTED,
        ("'o'", "plain"),
    ),
    "a file of the public reports: zipmap": ((MODELS / "zipmap.onnx").read_bytes(), R.MODEL_TYPE_UNSUPPORTED, ("zipmap",)),
}
SIGNATURES = ("onnxruntime::", "std::", ".cc:", ".h:", "[ONNXRuntimeError]", "onnxruntime_src")


@pytest.mark.parametrize("case", CASES)
def test_a_load_that_fails_says_why_and_what_helps(case: str) -> None:
    data, reason, words = CASES[case]

    with pytest.raises(WorkerError) as caught:
        OnnxEngine(data, providers=CPU, threads=1)

    message = caught.value.message
    assert (caught.value.reason, caught.value.reason in PERMANENT) == (reason, True), message
    assert all(word in message for word in words), message
    assert not any(mark in message for mark in SIGNATURES), message
    assert "zipmap" not in message or case.endswith("zipmap")
    assert len(message) < 600 and "\n" not in message


@pytest.mark.parametrize(
    ("producer", "cure"),
    [
        ("skl2onnx", "skl2onnx: options={'zipmap': False}"),
        ("OnnxMLTools", "onnxmltools: zipmap=False"),
        ("", "without ZipMap"),
    ],
)
def test_the_cure_of_a_zipmap_is_that_of_the_exporter(producer: str, cure: str) -> None:
    """Every such model was sent to an option of skl2onnx, which onnxmltools does not have."""
    model = onnx.load_from_string((MODELS / "zipmap.onnx").read_bytes())
    model.producer_name = producer

    with pytest.raises(WorkerError) as caught:
        OnnxEngine(model.SerializeToString(), providers=CPU, threads=1)

    assert caught.value.message.endswith(f"({cure})")


def test_each_reason_of_a_load_is_met() -> None:
    met = {reason for _, reason, _ in CASES.values()}
    of_files = {R.MODEL_NOT_FOUND, R.MODEL_TOO_LARGE, R.MODEL_DIGEST_MISMATCH, R.MODEL_UNREACHABLE, R.MODEL_REFUSED}
    of_signatures = {R.MODEL_UNSIGNED, R.MODEL_SIGNATURE_REFUSED}
    of_stores = {R.MODEL_ACCESS_DENIED, R.MODEL_CHANGED}
    of_runs = {R.MODEL_HUNG}

    assert met >= {reason for reason in R if reason.name.startswith("MODEL_")} - of_files - of_signatures - of_stores - of_runs


@pytest.mark.parametrize(
    ("said", "plain"),
    [
        (
            "[ONNXRuntimeError] : 1 : FAIL : /src/core/a.h:46 void ns::f(const std::map<int(int), int>&, bool) const Too new: 3.",
            "Too new: 3.",
        ),
        ("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : a.cc:2238 operator() It failed.", "It failed."),
        ("[ONNXRuntimeError] : 1 : FAIL : helper.h:59 Compute MatMul dimension mismatch", "MatMul dimension mismatch"),
        ("[ONNXRuntimeError] : 1 : FAIL : /s/n.cc:235 ns::L::L(const std::string&)::<lambda()> No locale xx", "No locale xx"),
        ("", "str"),
        ("\n\n  plain words  \n more", "plain words"),
    ],
)
def test_signatures_are_left_out_and_the_point_is_kept(said: str, plain: str) -> None:
    assert onnx_faults.plain(said) == plain


@given(st.text(max_size=900))
@settings(STEADY, max_examples=300)
def test_whatever_the_runtime_says_becomes_one_line(said: str) -> None:
    text = onnx_faults.plain(said)

    assert text and len(text) <= 402 and "\n" not in text
    assert onnx_faults.of_load(b"x", said, runtime="r")[1]


# weights in files of their own


def in_volume(root: Path, name: str) -> str:
    (root / "data" / "m").mkdir(parents=True, exist_ok=True)
    for path in (MODELS / f"{name}.onnx", MODELS / f"{name}.onnx.data"):
        (root / "data" / "m" / path.name).write_bytes(path.read_bytes())
    return f"pvc://data/m/{name}.onnx"


def as_sha256sum_prints(folder: Path, *names: str) -> str:
    lines = "".join(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in sorted(names))
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"


def answers_as_before(engine: OnnxEngine) -> bool:
    """Whether answers are those that were kept, but for the last bits: another processor has other kernels."""
    asked, answered = np.load(MODELS / "external.in.npz"), np.load(MODELS / "external.out.npz")
    answers = engine.run(dict(asked))
    return all(np.allclose(answers[name], answered[name], rtol=1e-5, atol=1e-6) for name in answered.files)


def test_weights_in_a_second_file_are_loaded_under_one_digest(tmp_path: Path) -> None:
    """microsoft/onnxruntime#6696."""
    uri = in_volume(tmp_path, "external")
    digest = as_sha256sum_prints(MODELS, "external.onnx", "external.onnx.data")

    files = fetch.read_model(uri, digest=digest, limit=1 << 30, hosts=(), root=tmp_path)
    engine = OnnxEngine(files.data, providers=CPU, threads=1, beside=files.beside)

    assert answers_as_before(engine)


def test_a_changed_byte_in_either_file_is_noticed(tmp_path: Path) -> None:
    uri = in_volume(tmp_path, "external")
    digest = as_sha256sum_prints(MODELS, "external.onnx", "external.onnx.data")
    data = tmp_path / "data" / "m" / "external.onnx.data"
    data.write_bytes(data.read_bytes()[:-1] + b"\1")

    with pytest.raises(WorkerError, match=r"sha256sum external\.onnx external\.onnx\.data") as caught:
        fetch.read_model(uri, digest=digest, limit=1 << 30, hosts=(), root=tmp_path)

    assert caught.value.reason is R.MODEL_DIGEST_MISMATCH


@pytest.mark.parametrize("what", ["missing", "too large in all"])
def test_the_second_file_has_its_own_faults(tmp_path: Path, what: str) -> None:
    uri = in_volume(tmp_path, "external")
    if what == "missing":
        (tmp_path / "data" / "m" / "external.onnx.data").unlink()

    with pytest.raises(WorkerError, match=r"external\.onnx\.data") as caught:
        fetch.read_model(uri, digest=None, limit=500_000, hosts=(), root=tmp_path)

    assert caught.value.reason is (R.MODEL_DATA_MISSING if what == "missing" else R.MODEL_TOO_LARGE)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../b", "x\\y"])
def test_weights_are_read_from_the_models_own_directory_only(tmp_path: Path, location: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "m.onnx").write_bytes(outside(location))

    with pytest.raises(WorkerError) as caught:
        fetch.read_model("pvc://data/m.onnx", digest=None, limit=1 << 20, hosts=(), root=tmp_path)

    assert caught.value.reason is R.URI_FORBIDDEN


def test_a_link_beside_the_model_does_not_lead_out_of_its_volume(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(16))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "m.onnx").write_bytes(outside("w.bin"))
    (tmp_path / "data" / "w.bin").symlink_to(tmp_path / "secret")

    with pytest.raises(WorkerError) as caught:
        fetch.read_model("pvc://data/m.onnx", digest=None, limit=1 << 20, hosts=(), root=tmp_path)

    assert caught.value.reason is R.URI_FORBIDDEN


def test_a_model_in_one_file_has_that_files_digest(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    data = made(IDENTITY)
    (tmp_path / "data" / "m.onnx").write_bytes(data)

    assert fetch.read_model("pvc://data/m.onnx", digest=None, limit=1 << 20, hosts=(), root=tmp_path) == fetch.ModelFiles(
        data, {}, f"sha256:{hashlib.sha256(data).hexdigest()}"
    )


def test_weights_are_put_into_the_file_for_tools_that_take_one() -> None:
    data, beside = (MODELS / "external.onnx").read_bytes(), {"external.onnx.data": (MODELS / "external.onnx.data").read_bytes()}

    whole = external_data.embedded(data, beside)

    assert external_data.files_of(whole) == () and external_data.embedded(b"m", {}) == b"m"
    assert answers_as_before(OnnxEngine(whole, providers=CPU, threads=1))


@pytest.mark.parametrize("locale", ["en_US", "en_US.UTF-8", "C"])
def test_the_locales_of_scikit_learns_texts_are_there_or_named(locale: str) -> None:
    """The image has them (worker-image/Containerfile); a developer's machine may not."""
    try:
        engine = OnnxEngine(normaliser(locale), providers=CPU, threads=1)
    except WorkerError as error:
        assert error.reason is R.MODEL_LOCALE_MISSING and locale in error.message  # noqa: PT017
    else:
        assert engine.run({"x": np.array([["Ab", "C"]], dtype=object)})["y"].tolist() == [["ab", "c"]]


def test_weights_beside_a_constant_of_a_function_are_fetched_too() -> None:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[2, 2], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="inner.bin")
    body = [helper.make_node("Constant", [], ["w"], value=weight), helper.make_node("MatMul", ["a", "w"], ["b"])]
    model = onnx.ModelProto.FromString(made([helper.make_node("Own", ["x"], ["y"], domain="my")], domains=(("my", 1),)))
    model.functions.append(helper.make_function("my", "Own", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    data = model.SerializeToString()

    assert external_data.files_of(data) == ("inner.bin",)
    assert external_data.files_of(external_data.embedded(data, {"inner.bin": b"1234" * 4})) == ()
