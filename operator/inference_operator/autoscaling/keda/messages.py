"""The messages of KEDA's external scaler, by their names and numbers in KEDA's pkg/scalers/externalscaler/externalscaler.proto."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "externalscaler"
SERVICE = f"{_PACKAGE}.ExternalScaler"

_OF_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "bool": _OF_FIELD.TYPE_BOOL,
    "double": _OF_FIELD.TYPE_DOUBLE,
    "int64": _OF_FIELD.TYPE_INT64,
    "string": _OF_FIELD.TYPE_STRING,
}
# Fields are numbered as they stand here, from 1. A star is repeated.
_MESSAGES = {
    "ScaledObjectRef": ("name string", "namespace string", "scalerMetadata *ScaledObjectRef.ScalerMetadataEntry"),
    "IsActiveResponse": ("result bool",),
    "MetricSpec": ("metricName string", "targetSize int64", "targetSizeFloat double"),
    "GetMetricSpecResponse": ("metricSpecs *MetricSpec",),
    "GetMetricsRequest": ("scaledObjectRef ScaledObjectRef", "metricName string"),
    "MetricValue": ("metricName string", "metricValue int64", "metricValueFloat double"),
    "GetMetricsResponse": ("metricValues *MetricValue",),
}


def _message(name: str, fields: tuple[str, ...]) -> descriptor_pb2.DescriptorProto:
    message = descriptor_pb2.DescriptorProto(name=name)
    for number, field in enumerate(fields, start=1):
        title, kind = field.split()
        label = _OF_FIELD.LABEL_REPEATED if kind.startswith("*") else _OF_FIELD.LABEL_OPTIONAL
        added = message.field.add(name=title, number=number, label=label)
        if kind in _TYPES:
            added.type = _TYPES[kind]
        else:
            added.type, added.type_name = _OF_FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind.lstrip('*')}"
    return message


def _file() -> descriptor_pb2.FileDescriptorProto:
    messages = {name: _message(name, fields) for name, fields in _MESSAGES.items()}
    # What a map<string, string> is on the wire.
    entry = _message("ScalerMetadataEntry", ("key string", "value string"))
    entry.options.map_entry = True
    messages["ScaledObjectRef"].nested_type.append(entry)
    return descriptor_pb2.FileDescriptorProto(
        name="inference_operator/externalscaler.proto", package=_PACKAGE, syntax="proto3", message_type=messages.values()
    )


# A pool of their own: a program may use another copy of KEDA's file beside this one.
_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(_file().SerializeToString())


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


ScaledObjectRef = _class("ScaledObjectRef")
IsActiveResponse = _class("IsActiveResponse")
MetricSpec = _class("MetricSpec")
GetMetricSpecResponse = _class("GetMetricSpecResponse")
GetMetricsRequest = _class("GetMetricsRequest")
MetricValue = _class("MetricValue")
GetMetricsResponse = _class("GetMetricsResponse")
