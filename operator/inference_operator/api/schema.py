"""How the API's types are declared: frozen pydantic dataclasses with camelCase names, every list and string bounded."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar, cast, dataclass_transform

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as pydantic_dataclass

from inference_operator.api.quantity import MAX_LENGTH, PATTERN, parse_quantity, quantity_text

GROUP = "inference.myorg"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"

_CONFIG = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field,))
def api_type(*rules: "Rule", **extensions: Any) -> Callable[[type[T]], type[T]]:
    """Declare an API type. `rules` are CEL validations, `extensions` further schema keywords (x-kubernetes-*)."""
    extra = dict(extensions)
    if rules:
        extra["x-kubernetes-validations"] = [rule.as_schema() for rule in rules]

    def wrap(cls: type[T]) -> type[T]:
        config = ConfigDict(**_CONFIG, json_schema_extra=extra) if extra else _CONFIG
        # pydantic returns the same class with fields added; its own annotation names a wrapper type.
        return cast(type[T], pydantic_dataclass(frozen=True, slots=True, kw_only=True, config=config)(cls))

    return wrap


class Rule:
    """One CEL validation of the CRD: what must hold, and what to tell the user when it doesn't."""

    __slots__ = ("message", "rule")

    def __init__(self, rule: str, message: str) -> None:
        self.rule = rule
        self.message = message

    def as_schema(self) -> dict[str, str]:
        """The entry under x-kubernetes-validations."""
        return {"rule": self.rule, "message": self.message}


def validated(*rules: Rule) -> dict[str, Any]:
    """CEL validations for one field, to be given as `json_schema_extra`."""
    return {"x-kubernetes-validations": [rule.as_schema() for rule in rules]}


# RFC 3339 on the wire; always with an offset, so that no instant depends on a machine's time zone.
Instant = Annotated[AwareDatetime, Field(json_schema_extra={"format": "date-time"})]
# What metadata.name of most objects may be: a subdomain of DNS.
ObjectName = Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", min_length=1, max_length=253)]
SecretName = ObjectName
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", max_length=71)]
ShortText = Annotated[str, Field(max_length=253)]
Message = Annotated[str, Field(max_length=4096)]
_NO_CLIMBING = Rule(
    "!self.matches('(?i)(^|/)([.]|%2e){2}(/|$)')",
    "must not contain '..': name the path from the volume's root",
)
VolumeLocation = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2048,
        json_schema_extra=validated(Rule("self.matches('^pvc://[^ ]+$')", "must be on a volume: pvc://CLAIM/PATH"), _NO_CLIMBING),
    ),
]
InputLocation = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2048,
        json_schema_extra=validated(
            Rule(
                "self.matches('^(pvc|s3|gs|hf|https|http|file)://[^ ]+$')",
                "must start with pvc://CLAIM/PATH, s3://BUCKET/KEY, gs://BUCKET/KEY, hf://ORG/REPO, https://, http:// or file:///",
            ),
            _NO_CLIMBING,
        ),
    ),
]
OutputLocation = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2048,
        json_schema_extra=validated(
            Rule(
                "self.matches('^(pvc|s3|gs)://[^ ]+$')",
                "must start with pvc://CLAIM/PATH, s3://BUCKET/FOLDER or gs://BUCKET/FOLDER",
            ),
            _NO_CLIMBING,
        ),
    ),
]
ModelLocation = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2048,
        json_schema_extra=validated(
            Rule(
                "self.matches('^(pvc|s3|gs|hf|oci|https|http|file)://[^ ]+$')",
                "must start with pvc://CLAIM/PATH, s3://BUCKET/KEY, gs://BUCKET/KEY, hf://ORG/REPO, oci://REGISTRY/REPO, https://, "
                "http:// or file:///",
            ),
            _NO_CLIMBING,
        ),
    ),
]


def _a_quantity(text: str) -> str:
    if parse_quantity(text) < 0:
        raise ValueError(f"{text!r} is below zero; write 0 or more")
    return text


# A Pod takes text, whole numbers and fractions. x-kubernetes-int-or-string refuses an unquoted 0.5, which Pods take, so the type is
# left open, and the bounds of each type stand beside each other: each applies to its own.
Quantity = Annotated[
    str,
    BeforeValidator(quantity_text),
    AfterValidator(_a_quantity),
    WithJsonSchema(
        {
            "x-kubernetes-preserve-unknown-fields": True,
            "pattern": PATTERN,
            "maxLength": MAX_LENGTH,
            "minimum": 0,
            "maxProperties": 0,
            "maxItems": 0,
            "not": {"enum": [True, False, {}, []]},
        }
    ),
]
LabelKey = Annotated[str, Field(max_length=317)]
LabelValue = Annotated[str, Field(max_length=63)]


def rfc3339(instant: datetime) -> str:
    """Kubernetes' own spelling of an instant: UTC, whole seconds, Z."""
    try:
        utc = instant.astimezone(UTC)
    except OverflowError:
        # The first and last hours of the calendar have no UTC in some time zones.
        return instant.isoformat(timespec="seconds")
    return f"{utc.year:04d}-{utc:%m-%dT%H:%M:%SZ}"
