"""What a class, a model or a job adds to worker pods. Which of it a cluster allows says the setting `podTemplate`."""

from typing import Annotated

from pydantic import Field

from inference_operator.api.pod_parts import Container, EnvironmentFrom, EnvironmentVariable, HostAlias, RunAs, Volume, VolumeMount
from inference_operator.api.schema import LabelKey, LabelValue, Rule, SecretName, ShortText, api_type


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
    toleration_seconds: Annotated[
        int | None,
        Field(ge=0, description="How long NoExecute is tolerated; a service starts on no node that would end it."),
    ] = None


@api_type()
class PodTemplate:
    """What users may add to worker pods, which stay at Pod Security's level restricted whatever it says."""

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
    env_from: Annotated[
        list[EnvironmentFrom],
        Field(
            max_length=8,
            description="Further variables of the worker container, from ConfigMaps and Secrets.",
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        ),
    ] = Field(default_factory=list)
    volumes: Annotated[
        list[Volume],
        Field(
            max_length=16,
            description="Volumes beside those of models and data.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = Field(default_factory=list)
    volume_mounts: Annotated[
        list[VolumeMount],
        Field(
            max_length=16,
            description="Where the worker container finds them.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["mountPath"]},
        ),
    ] = Field(default_factory=list)
    init_containers: Annotated[
        list[Container],
        Field(
            max_length=4,
            description="Containers that end before the worker starts, one after the other.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = Field(default_factory=list)
    sidecars: Annotated[
        list[Container],
        Field(
            max_length=4,
            description="Containers that run beside the worker. They start before it, and end after it.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = Field(default_factory=list)
    service_account_name: Annotated[
        SecretName | None,
        Field(description="The pods' ServiceAccount, for registries and identities of clouds. They get no token of it."),
    ] = None
    security_context: Annotated[RunAs | None, Field(description="Who their processes are.")] = None
    host_aliases: Annotated[
        list[HostAlias],
        Field(
            max_length=16,
            description="Hosts that the pods find without DNS.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["ip"]},
        ),
    ] = Field(default_factory=list)
