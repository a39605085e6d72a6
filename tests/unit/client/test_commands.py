"""The parts of commands that decide something: flags, files, places on claims, tensors, and what is redacted."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
import yaml
from rich.console import Console

from inference_client.errors import InvalidError
from inference_client.volume_pod import manifest
from kubectl_inference import draw, manifests, redact
from kubectl_inference.__main__ import main
from kubectl_inference.app import app
from kubectl_inference.commands.push import manifest_lines, model_digest
from kubectl_inference.helper_pod import place, writing
from kubectl_inference.options import duration, job_name
from kubectl_inference.pages.parts import Fact, Line, Page, Section, Table
from kubectl_inference.tensors import Declared, parse, plain, tensors
from tests.unit.client.objects import NOW


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("1h30m", 5400), ("20ms", 0.02), ("90", 90), ("1d", 86400)])
def test_durations_are_kubectls(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "10 m", "5mm", "-3s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="for example 30s"):
        duration(text)


def test_a_job_is_named_as_kubectl_names_it() -> None:
    assert {job_name(one) for one in ("x", "ij/x", "inferencejob/x", "inferencejobs.inference.myorg/x")} == {"x"}


def test_a_deadline_is_an_instant_or_a_distance() -> None:
    assert manifests.deadline("10m", NOW) == "2026-12-01T12:10:00Z"
    assert manifests.deadline("2026-12-02T01:00:00+01:00", NOW) == "2026-12-02T00:00:00Z"
    with pytest.raises(typer.BadParameter, match="no time zone"):
        manifests.deadline("2026-12-02T01:00:00", NOW)


def test_a_file_holds_jobs_and_models_alone() -> None:
    job = {"apiVersion": "inference.myorg/v1", "kind": "InferenceJob"}

    assert manifests.from_text(yaml.safe_dump_all([job, None]), "f") == [job]
    with pytest.raises(InvalidError, match="f holds a Pod; submit takes"):
        manifests.from_text(json.dumps({"apiVersion": "v1", "kind": "Pod"}), "f")
    with pytest.raises(InvalidError, match="holds no object"):
        manifests.from_text("", "f")
    with pytest.raises(InvalidError, match="is no YAML"):
        manifests.from_text("a: [", "f")


@pytest.mark.parametrize(
    ("target", "files", "uris"),
    [
        ("data/digits/model.onnx", ["m.onnx"], ["pvc://data/digits/model.onnx"]),
        ("pvc://data/digits/", ["dir/m.onnx"], ["pvc://data/digits/m.onnx"]),
        ("data", ["m.onnx"], ["pvc://data/m.onnx"]),
        ("data/d", ["m.onnx", "m.onnx.data"], ["pvc://data/d/m.onnx", "pvc://data/d/m.onnx.data"]),
    ],
)
def test_a_target_is_a_file_or_a_folder_on_a_claim(target: str, files: list[str], uris: list[str]) -> None:
    assert [one.uri for one in place(target, files)] == uris


@pytest.mark.parametrize("target", ["data/../etc/x", "/x", "data//x", "pvc://data://x"])
def test_no_target_leaves_its_claim(target: str) -> None:
    with pytest.raises(InvalidError):
        place(target, ["m"])


def test_names_are_arguments_of_what_runs_in_the_pod() -> None:
    command = writing(place("data/$(reboot)/m", ["m"])[0], 7)

    assert "reboot" not in command[2] and command[4:] == ["/data/$(reboot)/m", "7"]


def test_the_helper_pod_is_restricted() -> None:
    spec = manifest("p", "data", "busybox", component="push", life_seconds=60, read_only=False)["spec"]

    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not spec["automountServiceAccountToken"] and spec["activeDeadlineSeconds"]


def test_the_digest_of_several_files_is_the_one_that_sha256sum_prints(tmp_path: Path) -> None:
    files = [tmp_path / "b.data", tmp_path / "a.onnx", tmp_path / "model.sig"]
    for one in files:
        one.write_text(one.name)
    listed = subprocess.run(["sha256sum", "a.onnx", "b.data"], cwd=tmp_path, capture_output=True, check=True).stdout
    told = subprocess.run(["sha256sum"], input=listed, capture_output=True, check=True).stdout.decode().split()[0]

    assert model_digest(files) == f"sha256:{told}"
    assert model_digest(files[1:]) == model_digest([files[1]])


@pytest.mark.parametrize(
    ("name", "kind"), [("model.onnx", "Model"), ("model.pt", "Model"), ("rows.npz", "Job"), ("rows.csv.gz", "Job")]
)
def test_a_pushed_file_belongs_in_the_manifest_of_its_kind(name: str, kind: str) -> None:
    lines = manifest_lines(f"pvc://data/{name}", "sha256:00")
    (found,) = yaml.safe_load("\n".join(lines)) if kind == "Model" else (yaml.safe_load("\n".join(lines))["input"],)

    assert lines[0].endswith(f"Inference{kind}")
    assert (found["uri"], found["digest"]) == (f"pvc://data/{name}", "sha256:00")


def test_a_file_is_copied_to_a_store_and_replaced_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "model.onnx"
    source.write_bytes(b"a model")
    target = f"file://{tmp_path}/store/"
    (tmp_path / "store").mkdir()

    def push(*more: str) -> int:
        with pytest.raises(SystemExit) as ended:
            main(["push", str(source), target, "-o", "json", *more])
        return int(ended.value.code or 0)

    assert push() == 0
    assert json.loads(capsys.readouterr().out) == {
        "uri": f"{target}model.onnx",
        "digest": model_digest([source]),
        "files": [f"{target}model.onnx"],
    }
    assert push() == 1 and "is there already" in capsys.readouterr().err
    assert push("--force") == 0 and (tmp_path / "store" / "model.onnx").read_bytes() == b"a model"


PIXELS = Declared("pixels", "FP32", (-1, 2))


def test_values_become_tensors_of_the_models_inputs(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", pixels=np.ones((3, 2)))
    given = (tmp_path / "in.npz").read_bytes()

    (row,) = tensors([1, 2], [PIXELS])
    (rows,) = tensors(parse(given, "f"), [PIXELS])
    (words,) = tensors({"text": ["a", "ü"]}, [Declared("text", "BYTES", (-1,))])

    assert (row.array.shape, row.array.dtype) == ((1, 2), np.float32)
    assert rows.array.shape == (3, 2)
    assert list(words.array) == [b"a", "ü".encode()] and plain(words.array) == ["a", "ü"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([[1, 2, 3]], r"input pixels has the shape \[-1, 2\], and \[1, 3\] is given"),
        ({"pixel": [[1, 2]]}, "has no input pixel; it has pixels"),
        ([["x", "y"]], "input pixels takes FP32"),
    ],
)
def test_what_the_model_does_not_take_is_refused_by_name(value: object, words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        tensors(value, [PIXELS])
    with pytest.raises(InvalidError, match="give an object with these names"):
        tensors([1], [PIXELS, Declared("more", "FP32", (1,))])
    with pytest.raises(InvalidError, match="neither JSON nor"):
        parse(b"\x00", "f")


def test_an_array_of_python_objects_is_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)

    with pytest.raises(InvalidError):
        parse((tmp_path / "x.npy").read_bytes(), "x.npy")


SECRETS = {
    "metadata": {
        "name": "job",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "s3cret-value", "team": "vision"},
    },
    "spec": {
        "model": "https://user:s3cret-value@host/m.onnx?X-Amz-Signature=s3cret-value&v=1",
        "input": {"data": "s3cret-value"},
        "storage": {"secretRef": {"name": "store"}},
        "containers": [
            {
                "env": [
                    {"name": "HF_TOKEN", "value": "s3cret-value"},
                    {"name": "INFERENCE_WORKER_CONFIG", "value": "s3cret-value"},
                    {"name": "OMP_NUM_THREADS", "value": "4"},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "store", "key": "k"}}},
                ]
            }
        ],
        "password": "s3cret-value",
    },
    "env": "production",
    "status": {"output": {"data": "s3cret-value"}, "message": "401 for Bearer s3cret-value"},
}


def test_nothing_secret_is_in_a_report_and_the_rest_is() -> None:
    found = redact.document(SECRETS)
    told = json.dumps(found)

    assert "s3cret-value" not in told and "managedFields" not in told
    assert found["spec"]["storage"]["secretRef"] == {"name": "store"} and found["metadata"]["annotations"]["team"] == "vision"
    assert found["spec"]["containers"][0]["env"][2:] == SECRETS["spec"]["containers"][0]["env"][2:]  # type: ignore[index]
    assert found["env"] == "production"
    assert found["spec"]["model"] == "https://REDACTED@host/m.onnx?X-Amz-Signature=REDACTED&v=1"


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Bearer abcdef123456",
        "key AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig",
        "-----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY-----",
        "hf_abcdefghijklmnopqrstuvwx",
    ],
)
def test_credentials_in_logs_are_found(line: str) -> None:
    assert "REDACTED" in redact.text(line) and redact.text("GET /v2/models/digits 200") == "GET /v2/models/digits 200"


def test_a_list_is_drawn_as_kubectl_draws_it(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 200
    draw.show(
        draw.columns(Table(("NAME", "NOTE", "AGE"), ((Line("a"), Line(long), Line("5s")), (Line("bcdefg"), Line("y"), Line("1d")))))
    )
    out = capsys.readouterr().out.splitlines()

    assert out[0].split() == ["NAME", "NOTE", "AGE"] and out[1].split() == ["a", long, "5s"]
    assert out[1].index("5s") == out[2].index("1d") == out[0].index("AGE")


def test_a_page_is_read_by_programs_too(capsys: pytest.CaptureFixture[str]) -> None:
    made = Page(Line("it stands"), (Section("Pods", (Fact("a", Line("b")), Table(("NAME",), ((Line("p"),),)))),))

    draw.document(draw.of_page(made), "json")

    assert json.loads(capsys.readouterr().out) == {"headline": "it stands", "sections": {"Pods": [{"a": "b"}, [{"NAME": "p"}]]}}


def test_markup_in_what_users_write_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    draw.show(draw.page(Page(Line("[red]x[/red]"), ())))

    assert capsys.readouterr().out == "[red]x[/red]\n"


@pytest.mark.parametrize("width", [60, 100])
def test_no_word_of_a_message_is_cut_by_a_narrow_terminal(width: int) -> None:
    message = "sha256:00 was asked for; restore the file, or update the digest if the change is meant"
    row = tuple(Line(one) for one in ("100s", "Warning", "ModelDigestMismatch", "inferencejob/b1-digest", message))
    table = Table(("LAST-SEEN", "TYPE", "REASON", "OBJECT", "NOTE"), (row,))
    console = Console(width=width)

    with console.capture() as drawn:
        console.print(draw.page(Page(Line("a page"), (Section("Events", (table,)),))))

    assert " ".join(message.split()) in " ".join(drawn.get().split())


def test_a_pipe_is_wide_for_errors_too() -> None:
    assert draw.stderr().width == draw.stdout().width > 80


def test_kubectl_completes_the_plug_in() -> None:
    command = [sys.executable, "-m", "kubectl_inference.completion", "submit", "--fi"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    # The last line tells kubectl that names of files are no candidates.
    assert done.stdout.split() == ["--filename", "--firm", ":4"]


def test_every_command_and_option_has_its_help() -> None:
    group = typer.main.get_command(app)

    for name, command in group.commands.items():  # type: ignore[attr-defined]
        assert command.help, name
        assert [one.name for one in command.params if not getattr(one, "help", "")] == [], name


LISTS, PAGES = {"top"}, {"status", "explain"}


def test_options_have_kubectls_names() -> None:
    group = typer.main.get_command(app)
    assert group.context_settings["help_option_names"] == ["-h", "--help"]

    for name, command in group.commands.items():  # type: ignore[attr-defined]
        options = {option for one in command.params for option in one.opts}
        assert {"--context", "--kubeconfig"} <= options, name
        assert name == "version" or {"-n", "--namespace"} <= options, name
        assert (
            name not in LISTS
            or {"-A", "--all-namespaces", "-l", "--selector", "--field-selector", "-o", "-w", "--watch"} <= options
        )
        assert name not in PAGES or {"-o", "--output"} <= options
        assert name != "submit" or {"-f", "--filename", "--dry-run", "-o", "--wait", "--timeout"} <= options
        assert name != "wait" or {"--for", "--timeout"} <= options


def test_the_list_of_commands_cuts_no_help_short(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])

    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def test_a_wrong_use_is_told_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["status"])

    assert ended.value.code == 2
    out, errors = capsys.readouterr()
    assert out == "" and "Missing argument 'JOB'" in errors
