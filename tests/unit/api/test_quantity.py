"""Quantities: as exact as decimals are, rounded up, and nothing else than quantities."""

import re
from decimal import ROUND_CEILING, Context, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from inference_operator.api.job import InferenceJobSpec
from inference_operator.api.quantity import PATTERN, format_quantity, parse_quantity
from inference_operator.api.resources import Resources
from inference_operator.state.resources import add, amounts, format_amount, shortage, subtract

SUFFIXES = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "m": -3, "u": -6, "n": -9}
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}

numbers = st.decimals(min_value=0, max_value=10**4, allow_nan=False, allow_infinity=False, places=3)


def exactly(number: Decimal, suffix: str) -> Decimal:
    with localcontext(Context(prec=200)):
        return number * (Decimal(1024) ** BINARY[suffix] if suffix in BINARY else Decimal(10) ** SUFFIXES[suffix])


@given(numbers, st.sampled_from([*SUFFIXES, *BINARY]), st.sampled_from([1, 1000]))
def test_a_quantity_is_its_decimal_value_rounded_up(number: Decimal, suffix: str, parts: int) -> None:
    with localcontext(Context(prec=200)):
        # A Quantity holds no more than this.
        exact = (min(exactly(number, suffix), Decimal(2**63 - 1)) * parts).to_integral_value(ROUND_CEILING)

    assert parse_quantity(f"{number:f}{suffix}", milli=parts == 1000) == int(exact)


@pytest.mark.parametrize(
    ("text", "units", "millis"),
    [("1500m", 2, 1500), ("0.1", 1, 100), ("1e3", 1000, 1_000_000), ("1E3", 1000, 1_000_000), ("1E", 10**18, 10**21),
     ("2Gi", 2**31, 2**31 * 1000), ("0", 0, 0), ("-1", -1, -1000), ("7910m", 8, 7910), ("100n", 1, 1)],
)  # fmt: skip
def test_spellings_that_clusters_use(text: str, units: int, millis: int) -> None:
    assert (parse_quantity(text), parse_quantity(text, milli=True)) == (units, millis)


@pytest.mark.parametrize("text", ["", "Gi", "1gi", "one", "1mm", "--1", "1.2.3", "0x10", "1Gim", "NaN", "sNaN"])
def test_what_is_no_quantity_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1 Gi", " 1", "1_000", "\uff11", "Infinity"])
def test_what_only_decimals_allow_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError):
        parse_quantity(text)


def test_a_long_fraction_is_rounded_up_too() -> None:
    assert parse_quantity("1." + "0" * 30 + "1") == 2


# resource.Quantity's grammar (k8s.io/apimachinery), written a second time.
digits = st.text("0123456789", min_size=1, max_size=9)
signs = st.sampled_from(["", "+", "-"])
suffixes = st.sampled_from(["", *SUFFIXES, *BINARY])
exponents = st.builds("{}{}{}".format, st.sampled_from("eE"), signs, st.integers(0, 30))
parts = st.tuples(digits, digits)
mantissas = digits | parts.map(".".join) | digits.map("{}.".format) | digits.map(".{}".format)
ADAPTER = TypeAdapter(Resources)


@given(signs, mantissas, suffixes | exponents)
def test_whatever_the_grammar_of_kubernetes_allows_is_a_quantity(sign: str, mantissa: str, end: str) -> None:
    value = parse_quantity(f"{sign}{mantissa}{end}")

    assert (value > 0) <= (sign != "-") and abs(value) <= 2**63 - 1
    assert (re.search(PATTERN, f"{sign}{mantissa}{end}") is not None) == (sign != "-")


@given(st.text("0123456789.+-eEkKmMgGiInu x", max_size=8))
def test_the_crd_lets_through_what_the_operator_can_read_and_nothing_else(text: str) -> None:
    try:
        readable = parse_quantity(text) >= 0 and "-" not in text[:1]
    except ValueError:
        readable = False

    assert (re.search(PATTERN, text) is not None) == readable


@pytest.mark.parametrize(
    ("written", "text"), [(1, "1"), (0.5, "0.5"), (10**9, "1000000000"), (1e-05, "1e-05"), ("1E", "1E"), ("1e9", "1e9"), (0, "0")]
)
def test_a_number_without_quotes_is_an_amount(written: object, text: str) -> None:
    """SeldonIO/seldon-core#1410: `cpu: 1` was refused, though a Pod takes it."""
    spec = TypeAdapter(InferenceJobSpec).validate_python({"model": "m", "resources": {"requests": {"cpu": written}}})

    assert spec.resources is not None and spec.resources.requests == {"cpu": text}


@pytest.mark.parametrize("written", [True, None, [], {}, -1, "-1", "much", "1" * 65, float("nan"), float("inf")])
def test_what_no_pod_takes_is_refused_by_name(written: object) -> None:
    with pytest.raises(ValidationError) as refused:
        ADAPTER.validate_python({"limits": {"cpu": written}})

    assert refused.value.errors()[0]["loc"] == ("limits", "cpu")


def test_a_value_beyond_the_largest_is_the_largest() -> None:
    """As the API server takes it: a request for everything is met by no node, and ends nobody's look."""
    assert parse_quantity("1e99") == parse_quantity("9999999999999E") == 2**63 - 1


amount_maps = st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "gpu"]), st.integers(0, 1000))


@given(amount_maps, amount_maps)
def test_what_is_added_can_be_taken_off_again(a: dict[str, int], b: dict[str, int]) -> None:
    total = dict(a)
    add(total, b)
    subtract(total, b.items())

    assert {name: value for name, value in total.items() if value} == {name: value for name, value in a.items() if value}


@given(amount_maps, amount_maps)
def test_a_need_fits_when_no_resource_is_short(need: dict[str, int], free: dict[str, int]) -> None:
    short = shortage(need.items(), free)

    assert (short is None) == all(value <= free.get(name, 0) for name, value in need.items())
    assert short is None or need[short] > free.get(short, 0)


def test_a_node_does_not_gain_a_resource_by_losing_it() -> None:
    free = {"cpu": 1}
    subtract(free, {"cpu": 1, "gpu": 1}.items())
    assert free == {"cpu": 0}


def test_cpu_counts_in_thousandths_and_people_read_it_in_cores() -> None:
    assert amounts({"cpu": "1.5", "memory": "1Ki"}) == {"cpu": 1500, "memory": 1024}
    assert format_amount("cpu", 1500) == "1.5"
    assert format_amount("memory", 2**30) == "1024Mi"
    assert format_amount("nvidia.com/gpu", 2) == "2"


@given(st.integers(0, 2**63 - 1))
def test_a_number_is_written_so_that_it_is_read_again(number: int) -> None:
    assert parse_quantity(format_quantity(number)) == number


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (300, "300"), (1000, "1k"), (1500, "1500"), (2_000_000, "2M")])
def test_a_number_is_written_as_the_api_server_does(number: int, text: str) -> None:
    assert format_quantity(number) == text
