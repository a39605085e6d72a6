"""Variables, volumes and containers that a template adds to worker pods, as in core/v1 but fewer."""

from typing import Annotated, Any

from pydantic import Field

from inference_operator.api.quantity import MAX_LENGTH, PATTERN
from inference_operator.api.resources import Resources
from inference_operator.api.schema import Rule, SecretName, ShortText, api_type, validated
from inference_operator.template_limits import RESERVED_ENVIRONMENT, TEMPLATE_ROOT

_ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
_BY_NAME: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}

VariableName = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
# The operator puts "extra-" before it in the pod, where a name has 63 letters.
PartName = Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=56)]
FilePath = Annotated[str, Field(pattern="^[-._a-zA-Z0-9]+(/[-._a-zA-Z0-9]+)*$", max_length=253)]


@api_type()
class KeyReference:
    """A key of a Secret or a ConfigMap of the job's namespace."""

    name: Annotated[SecretName, Field(description="Its name.")]
    key: Annotated[str, Field(pattern="^[-._a-zA-Z0-9]+$", max_length=253, description="The key in it.")]
    optional: Annotated[bool, Field(description="Whether the pod starts without it.")] = False


@api_type()
class FieldReference:
    """A field of the pod itself."""

    field_path: Annotated[
        str,
        Field(
            pattern="^(metadata\\.(name|namespace|uid)|metadata\\.(labels|annotations)\\['[-._/a-zA-Z0-9]+'\\]|"
            "spec\\.nodeName|status\\.(hostIP|podIP|podIPs))$",
            max_length=400,
            description="For example metadata.name, spec.nodeName or metadata.labels['team'].",
        ),
    ]


@api_type(
    Rule(
        "[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].filter(x, x).size() == 1",
        "set exactly one of secretKeyRef, configMapKeyRef and fieldRef",
    )
)
class VariableSource:
    """Where a variable's value comes from."""

    secret_key_ref: Annotated[
        KeyReference | None, Field(description="A Secret's key; the setting podTemplate.secrets has to list the Secret.")
    ] = None
    config_map_key_ref: Annotated[KeyReference | None, Field(description="A ConfigMap's key.")] = None
    field_ref: Annotated[FieldReference | None, Field(description="A field of the pod.")] = None


_EITHER = Rule("!has(self.valueFrom) || !has(self.value) || self.value == ''", "set value or valueFrom, not both")


@api_type(_EITHER)
class EnvironmentVariable:
    """A variable set in the worker container."""

    name: Annotated[
        VariableName,
        Field(
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
    value_from: Annotated[VariableSource | None, Field(description="Where its value comes from instead.")] = None


@api_type(_EITHER)
class ContainerVariable:
    """A variable of a container beside the worker."""

    name: Annotated[VariableName, Field(description="Its name.")]
    value: Annotated[str, Field(max_length=4096, description="Its value.")] = ""
    value_from: Annotated[VariableSource | None, Field(description="Where its value comes from instead.")] = None


@api_type()
class ObjectReference:
    """A Secret or a ConfigMap of the job's namespace."""

    name: Annotated[SecretName, Field(description="Its name.")]
    optional: Annotated[bool, Field(description="Whether the pod starts without it.")] = False


@api_type(Rule("has(self.configMapRef) != has(self.secretRef)", "set exactly one of configMapRef and secretRef"))
class EnvironmentFrom:
    """All entries of a ConfigMap or a Secret, as variables of the worker container."""

    prefix: Annotated[
        VariableName,
        Field(description="Before each name; the setting podTemplate has to allow all names that begin so, as it allows APP_."),
    ]
    config_map_ref: Annotated[ObjectReference | None, Field(description="A ConfigMap.")] = None
    secret_ref: Annotated[
        ObjectReference | None, Field(description="A Secret; the setting podTemplate.secrets has to list it.")
    ] = None


@api_type()
class KeyFile:
    """A key that becomes a file."""

    key: Annotated[str, Field(pattern="^[-._a-zA-Z0-9]+$", max_length=253, description="The key.")]
    path: Annotated[FilePath, Field(description="The file, below the mount.")]


@api_type()
class EmptyDirectory:
    """A directory that lives as long as the pod."""

    size_limit: Annotated[
        str, Field(pattern=PATTERN, max_length=MAX_LENGTH, description="As text; the kubelet ends a pod that holds more.")
    ] = "1Gi"


@api_type()
class ConfigMapVolume:
    """A ConfigMap of the job's namespace as files."""

    name: Annotated[SecretName, Field(description="Its name.")]
    items: Annotated[list[KeyFile], Field(max_length=32, description="Which keys; all without it.", json_schema_extra=_ATOMIC)] = (
        Field(default_factory=list)
    )
    optional: Annotated[bool, Field(description="Whether the pod starts without it.")] = False


@api_type()
class SecretVolume:
    """Keys of a Secret of the job's namespace as files."""

    secret_name: Annotated[SecretName, Field(description="Its name; the setting podTemplate.secrets has to list it.")]
    items: Annotated[list[KeyFile], Field(min_length=1, max_length=32, description="Which keys.", json_schema_extra=_ATOMIC)]
    optional: Annotated[bool, Field(description="Whether the pod starts without it.")] = False


@api_type(
    Rule(
        "[has(self.emptyDir), has(self.configMap), has(self.secret)].filter(x, x).size() == 1",
        "set exactly one of emptyDir, configMap and secret; data on a claim has a pvc:// URI",
    )
)
class Volume:
    """A volume of the pod."""

    name: Annotated[PartName, Field(description="The name that mounts refer to.")]
    empty_dir: Annotated[EmptyDirectory | None, Field(description="A directory of the pod's own.")] = None
    config_map: Annotated[ConfigMapVolume | None, Field(description="A ConfigMap.")] = None
    secret: Annotated[SecretVolume | None, Field(description="A Secret.")] = None


@api_type()
class VolumeMount:
    """Where the worker container finds a volume of the template."""

    name: Annotated[PartName, Field(description="The volume.")]
    mount_path: Annotated[
        str,
        Field(
            pattern=f"^{TEMPLATE_ROOT}(/[-._a-zA-Z0-9]+)+$",
            max_length=253,
            description=f"A path below {TEMPLATE_ROOT}: nothing is mounted over the image or over what the operator mounts.",
            json_schema_extra=validated(Rule("!self.contains('..')", "must not contain '..'")),
        ),
    ]
    read_only: Annotated[bool, Field(description="Whether nobody writes there.")] = False


@api_type()
class ContainerMount:
    """Where a container beside the worker finds a volume of the template."""

    name: Annotated[PartName, Field(description="The volume.")]
    mount_path: Annotated[
        str,
        Field(
            pattern="^/[-._/a-zA-Z0-9]+$",
            max_length=253,
            description="A path of the container's own.",
            json_schema_extra=validated(Rule("!self.contains('..')", "must not contain '..'")),
        ),
    ]
    read_only: Annotated[bool, Field(description="Whether nobody writes there.")] = False


@api_type()
class Container:
    """A container beside the worker. It runs as restricted as the worker, and sees the template's volumes alone."""

    name: Annotated[PartName, Field(description="Its name.")]
    image: Annotated[
        str, Field(min_length=1, max_length=512, description="Its image; the setting podTemplate.images has to list it.")
    ]
    command: Annotated[
        list[Annotated[str, Field(max_length=4096)]],
        Field(max_length=32, description="In place of the image's entry point.", json_schema_extra=_ATOMIC),
    ] = Field(default_factory=list)
    args: Annotated[
        list[Annotated[str, Field(max_length=4096)]], Field(max_length=64, description="Arguments.", json_schema_extra=_ATOMIC)
    ] = Field(default_factory=list)
    env: Annotated[list[ContainerVariable], Field(max_length=32, description="Variables.", json_schema_extra=_BY_NAME)] = Field(
        default_factory=list
    )
    resources: Annotated[
        Resources | None, Field(description="Requests and limits; they count when a node is chosen. A device is none of its.")
    ] = None
    volume_mounts: Annotated[
        list[ContainerMount], Field(max_length=8, description="Volumes of the template.", json_schema_extra=_ATOMIC)
    ] = Field(default_factory=list)


@api_type()
class RunAs:
    """Who the pod's processes are. The setting podTemplate.ids has to allow each number."""

    run_as_user: Annotated[int | None, Field(ge=1, le=2**31 - 1, description="The user.")] = None
    run_as_group: Annotated[int | None, Field(ge=1, le=2**31 - 1, description="The group.")] = None
    fs_group: Annotated[int | None, Field(ge=1, le=2**31 - 1, description="The group that volumes are given to.")] = None
    supplemental_groups: Annotated[
        list[Annotated[int, Field(ge=1, le=2**31 - 1)]],
        Field(max_length=16, description="Further groups.", json_schema_extra=_ATOMIC),
    ] = Field(default_factory=list)


@api_type()
class HostAlias:
    """Names of hosts that the pod finds at an address, without DNS."""

    ip: Annotated[str, Field(min_length=2, max_length=45, pattern="^[0-9a-fA-F.:]+$", description="The address.")]
    hostnames: Annotated[
        list[ShortText],
        Field(
            min_length=1,
            max_length=16,
            description="The names; the setting podTemplate.hostAliases has to list each.",
            json_schema_extra=_ATOMIC,
        ),
    ]
