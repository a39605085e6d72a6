"""What a job adds to its worker pods. Which of it a cluster allows says the setting `podTemplate`."""

from typing import Annotated

from pydantic import Field

from inference_operator.api.schema import LabelKey, LabelValue, Rule, ShortText, api_type, validated
from inference_operator.template_limits import RESERVED_ENVIRONMENT


@api_type(
    Rule("has(self.key) && self.key != ''", "name the taint by its key: a toleration without one tolerates every taint"),
    Rule(
        "!has(self.value) || self.value == '' || !has(self.operator) || self.operator == 'Equal'",
        "value goes with operator: Equal; leave it out for Exists",
    ),
)
class Toleration:
    """A toleration as in core/v1."""

    key: Annotated[LabelKey | None, Field(description="The taint's key, which must be there.")] = None
    operator: Annotated[str, Field(pattern="^(Exists|Equal)$", max_length=8, description="Exists or Equal.")] = "Equal"
    value: Annotated[LabelValue | None, Field(description="The taint's value, for Equal.")] = None
    effect: Annotated[
        str | None,
        Field(pattern="^(NoSchedule|PreferNoSchedule|NoExecute)$", max_length=16, description="The taint's effect; none is all."),
    ] = None
    toleration_seconds: Annotated[int | None, Field(ge=0, description="How long NoExecute is tolerated.")] = None


@api_type()
class EnvironmentVariable:
    """A variable set in the worker container."""

    name: Annotated[
        str,
        Field(
            pattern="^[A-Za-z_][A-Za-z0-9_]*$",
            max_length=128,
            description="The variable's name: one of those that the setting podTemplate allows.",
            json_schema_extra=validated(
                Rule(
                    f"!self.matches('{RESERVED_ENVIRONMENT}')",
                    "is reserved: the loader, Python or a runtime obeys it before the worker has verified anything",
                )
            ),
        ),
    ]
    value: Annotated[str, Field(max_length=4096, description="Its value.")] = ""


@api_type()
class PodTemplate:
    """What users may add to worker pods. The security context is not among it: it stays restricted."""

    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=32, description="Labels added to worker pods.")] = Field(
        default_factory=dict
    )
    annotations: Annotated[
        dict[LabelKey, Annotated[str, Field(max_length=4096)]], Field(max_length=32, description="Annotations added.")
    ] = Field(default_factory=dict)
    env: Annotated[
        list[EnvironmentVariable],
        Field(
            max_length=64,
            description="Environment of the worker container.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = Field(default_factory=list)
    priority_class_name: Annotated[ShortText | None, Field(description="The pods' PriorityClass.")] = None
    runtime_class_name: Annotated[ShortText | None, Field(description="The pods' RuntimeClass.")] = None
    image_pull_secrets: Annotated[
        list[ShortText],
        Field(max_length=8, description="Secrets to pull images with.", json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = Field(default_factory=list)
