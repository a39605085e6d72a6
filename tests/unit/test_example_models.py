"""The example models answer well, are the same in every build, and are built only once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from magika import Magika
from threadpoolctl import threadpool_limits

from examples.models import digits, draw, index, lane, lane_net, magika_model, road
from examples.models.file_types import Agreement, agreement, extension
from examples.models.magika_features import PADDING, default_trees, read_trees, tokens
from examples.models.sessions import Session

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

LEAST_ACCURACY = 0.95
LEAST_IOU = 0.7
LEAST_SAME_ANSWERS = 0.99


@pytest.fixture(scope="module")
def digits_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    digits.build(folder)
    return folder


def test_digits_are_read_right_by_the_written_graph(digits_folder: Path) -> None:
    pixels = np.load(digits_folder / "heldout.npz")["pixels"]
    labels = np.load(digits_folder / "labels.npy")

    answers = Session(digits_folder / "model.onnx").run(pixels)

    assert pixels.shape == (599, 64)
    assert answers["probabilities"].shape == (599, 10)
    assert np.allclose(answers["probabilities"].sum(axis=1), 1, atol=1e-5)
    assert np.array_equal(answers["probabilities"].argmax(axis=1), answers["label"])
    assert digits.accuracy(answers["label"], labels) >= LEAST_ACCURACY


def test_json_lines_hold_the_first_held_out_digits(digits_folder: Path) -> None:
    pixels = np.load(digits_folder / "heldout.npz")["pixels"]

    lines = (digits_folder / "heldout.jsonl").read_text(encoding="utf-8").splitlines()

    assert np.array_equal([json.loads(line)["pixels"] for line in lines], pixels[:32])


def test_digits_are_the_same_files_in_every_build(digits_folder: Path, tmp_path: Path) -> None:
    digits.build(tmp_path)

    assert hash_folder(tmp_path) == hash_folder(digits_folder)


def test_a_road_is_known_by_its_seed_and_number() -> None:
    images, masks = road.examples(7, 3)

    image, mask = road.draw_example(7, 2)

    assert images.shape == (3, 3, 128, 256)
    assert masks.shape == (3, 1, 128, 256)
    assert np.array_equal(images[2], image)
    assert np.array_equal(masks[2], mask)
    assert not np.array_equal(images[1], image)


def test_roads_keep_to_their_ranges() -> None:
    images, masks = road.examples(8, 6)

    assert images.min() >= 0
    assert images.max() <= 1
    assert set(np.unique(masks)) == {0, 1}
    assert 0.002 < masks.mean() < 0.1


def test_a_mirrored_sample_is_the_sample_of_the_mirrored_map() -> None:
    maps = random_maps()
    spot = (np.array([0]), np.array([9]), np.array([5]))
    across = (np.array([0]), np.array([9]), np.array([32 - 1 - 5]))

    seen = lane_net.gather(maps, spot, np.array([True]))

    turned = {name: values[..., ::-1] for name, values in maps.items()}
    assert np.array_equal(seen, lane_net.gather(turned, across, np.array([False])))


def test_the_lane_graph_computes_what_was_trained() -> None:
    random = np.random.default_rng(3)
    images = random.random((1, 3, 40, 72), dtype=np.float32)
    perceptron = random_perceptron(random)
    corners_and_middle = (np.zeros(3, dtype=np.int64), np.array([0, 39, 20]), np.array([0, 71, 30]))

    lanes = Session(lane_net.write_net(perceptron)).run(images)["lanes"][:, 0]

    maps = Session(lane_net.write_maps()).run(images)
    seen = lane_net.gather(maps, corners_and_middle, np.zeros(3, dtype=np.bool_))
    hidden = np.maximum(seen @ perceptron.weights[0] + perceptron.biases[0], 0)
    logits = hidden @ perceptron.weights[1] + perceptron.biases[1]
    expected = 1 / (1 + np.exp(-logits[:, 0]))
    assert np.allclose(lanes[corners_and_middle], expected, atol=1e-4)


def test_iou_counts_line_pixels_only() -> None:
    truth = np.array([[[[1, 1, 0, 0]]]], dtype=np.float32)

    assert lane.iou(truth, truth) == 1
    assert lane.iou(truth[..., ::-1], truth) == 0
    assert lane.iou(np.ones_like(truth), truth) == 0.5


def test_an_overlay_colours_lanes_and_dims_the_rest() -> None:
    image = np.full((3, 4, 6), 0.5, dtype=np.float32)
    lanes = np.zeros((1, 4, 6), dtype=np.float32)
    lanes[0, 1, 2] = 1

    picture = draw.overlay(image, lanes)

    assert picture.size == (6, 4)
    assert picture.getpixel((0, 0)) == (79, 79, 79)
    red, green, _ = np.asarray(picture)[1, 2]
    assert red > 230
    assert green < 60


def test_a_contact_sheet_is_a_picture_with_a_row_per_image(tmp_path: Path) -> None:
    images, masks = road.examples(9, 2)

    draw.write_contact_sheet(images, masks, masks, tmp_path / "sheet.png")

    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
    sheet = draw.contact_sheet(images, masks, masks)
    assert sheet.width > 3 * 512
    assert sheet.height > 2 * 256


@pytest.mark.parametrize("content", [b"", b"1234567", b" \n\t 1234567", b"\n" * 5000])
def test_files_with_too_few_bytes_have_no_tokens(content: bytes) -> None:
    assert tokens(content[:4096], content[-4096:]) is None


def test_each_end_of_a_small_file_is_stripped_on_its_own_side() -> None:
    row = tokens(b"  12345678\n", b"  12345678\n")

    assert row is not None
    assert bytes(row[:9].tolist()) == b"12345678\n"
    assert bytes(row[-10:].tolist()) == b"  12345678"
    assert set(row[9:-10].tolist()) == {PADDING}


def test_tokens_are_the_first_and_last_kibibyte() -> None:
    row = tokens(b"a" * 1024 + b"b" * 3072, b"c" * 3072 + b"d" * 1024)

    assert row is not None
    assert set(row[:1024].tolist()) == {ord("a")}
    assert set(row[1024:].tolist()) == {ord("d")}


def test_a_tree_gives_every_type_its_turn(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.py").write_text("import something\n", encoding="utf-8")
    (tmp_path / "z.md").write_text("# a long enough text\n", encoding="utf-8")
    (tmp_path / "a.md").write_text("short", encoding="utf-8")
    (tmp_path / "link.rst").symlink_to(tmp_path / "z.md")

    rows, names, _ = read_trees([tmp_path], 3)

    root = tmp_path.name
    assert names == [f"{root}/0.py", f"{root}/1.py", f"{root}/z.md"]
    assert rows.shape == (3, 2048)
    assert rows.dtype == np.int32


def test_an_empty_tree_gives_no_rows(tmp_path: Path) -> None:
    rows, names, paths = read_trees([tmp_path], 3)

    assert rows.shape == (0, 2048)
    assert (names, paths) == ([], [])


def test_our_features_lead_to_the_answers_of_the_package() -> None:
    model = magika_model.find_model()
    labels = magika_model.read_config(model)["target_labels_space"]
    rows, _, paths = read_trees(default_trees(), 128)

    ours = magika_model.classify(Session(model / "model.onnx"), rows, labels)

    theirs = [str(result.prediction.dl.label) for result in Magika().identify_paths(paths)]
    assert len(ours) >= 100
    assert np.mean(np.array(ours) == np.array(theirs)) >= LEAST_SAME_ANSWERS


def test_another_feature_rule_is_refused(tmp_path: Path) -> None:
    rule = {**magika_model.EXPECTED_RULE, "block_size": 8192}
    (tmp_path / "config.min.json").write_text(json.dumps(rule), encoding="utf-8")

    with pytest.raises(magika_model.RuleChangedError, match="8192"):
        magika_model.read_config(tmp_path)


def test_names_without_a_promise_are_not_judged() -> None:
    found = agreement(
        ["python", "markdown", "gzip", "elf"],
        ["a.py", "b.txt", "doc/changelog.gz", "bin/program.unheard-of"],
    )

    assert found == Agreement(agreed=2, judged=3)
    assert found.share == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/b.PY", "py"),
        ("x/Makefile", "makefile"),
        (".gitignore", ".gitignore"),
        ("a.tar.gz", "gz"),
    ],
)
def test_an_extension_is_lower_case_or_the_whole_name(name: str, expected: str) -> None:
    assert extension(name) == expected


def test_an_index_is_current_until_a_file_or_the_recipe_changes(tmp_path: Path) -> None:
    made = tmp_path / "digits.bin"
    made.write_bytes(b"weights")
    files = {made.name: index.hash_file(made)}
    index.write_index(tmp_path, {"recipe": "r1", "models": {}, "files": files})

    assert index.is_current(tmp_path, "r1")
    assert not index.is_current(tmp_path, "r2")
    made.write_bytes(b"other weights")
    assert not index.is_current(tmp_path, "r1")
    made.unlink()
    assert not index.is_current(tmp_path, "r1")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"recipe": "r1"}'])
def test_a_broken_index_is_not_current(tmp_path: Path, text: str) -> None:
    (tmp_path / index.INDEX).write_text(text, encoding="utf-8")

    assert not index.is_current(tmp_path, "r1")


@pytest.mark.slow
def test_a_full_build_is_good_repeatable_and_done_once(example_models: Path, tmp_path: Path) -> None:
    trees = default_trees()
    again = tmp_path / "again" / "magika"
    again.mkdir(parents=True)

    assert not index.build_all(example_models, trees)
    assert index.build_all(tmp_path / "two", trees)
    assert not index.build_all(tmp_path / "two", trees)
    with threadpool_limits(1):
        magika_model.build(again, trees)

    # Files of the machine are magika's data: those that an older build has seen may have changed since.
    assert hash_folder(tmp_path / "two" / "magika") == hash_folder(again)
    made, before = read_index(tmp_path / "two"), read_index(example_models)
    assert made["recipe"] == before["recipe"]
    for name in ("digits", "lane"):
        assert hash_folder(tmp_path / "two" / name) == hash_folder(example_models / name)
        assert made["models"][name] == before["models"][name]
    assert made["models"]["digits"]["measured"]["accuracy"] >= LEAST_ACCURACY
    assert made["models"]["lane"]["measured"]["iou"] >= LEAST_IOU
    assert made["models"]["lane"]["inputs"] == [{"name": "image", "type": "float32", "shape": ["N", 3, "H", "W"]}]
    assert made["models"]["magika"]["measured"]["agreement"] >= 0.75
    assert "magika/LICENSE" in made["files"]


def read_index(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / index.INDEX).read_text(encoding="utf-8"))
    return found


def hash_folder(folder: Path) -> dict[str, str]:
    """Return path and SHA-256 of every file in a folder."""
    return {path.relative_to(folder).as_posix(): index.hash_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def random_maps() -> dict[str, NDArray[np.float32]]:
    """Return maps [1,channels,24,32] of noise."""
    random = np.random.default_rng(2)
    return {name: random.random((1, channels, 24, 32), dtype=np.float32) for name, channels in lane_net.CHANNELS.items()}


def random_perceptron(random: np.random.Generator) -> lane_net.Perceptron:
    """Return a perceptron with one hidden layer of four, and small random weights."""
    inputs = sum(tap.values for tap in lane_net.TAPS)
    shapes = ((inputs, 4), (4, 1))
    return lane_net.Perceptron(
        weights=tuple(random.normal(0, 0.1, shape).astype(np.float32) for shape in shapes),
        biases=tuple(random.normal(0, 0.1, shape[1]).astype(np.float32) for shape in shapes),
    )
