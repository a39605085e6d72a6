"""Messages by name and number in a table, as protobuf's runtime wants them: no generated code, and none of its imports."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    json_format,
    message_factory,
    struct_pb2,
    wrappers_pb2,
)

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _FIELD.TYPE_BOOL,
    "bytes": _FIELD.TYPE_BYTES,
    "double": _FIELD.TYPE_DOUBLE,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "string": _FIELD.TYPE_STRING,
    "uint32": _FIELD.TYPE_UINT32,
}
_WELL_KNOWN = {"Any", "BoolValue", "Duration", "Struct", "UInt32Value", "UInt64Value"}
_WELL_KNOWN_FILES = (any_pb2, duration_pb2, struct_pb2, wrappers_pb2)


class Table:
    """The messages of a table, each a line `NAME: FIELD NUMBER TYPE, ...` that may go on indented. A star is repeated.

    A name with dots is in a package of its own, any other in `package`.
    """

    def __init__(self, package: str, lines: str) -> None:
        self._package = package
        self._pool = self._made([_message(package, line) for line in lines.replace("\n    ", " ").splitlines() if line])

    def message(self, name: str) -> Any:
        """The class of a message."""
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))

    def packed(self, kind: str, manifest: Mapping[str, object]) -> bytes:
        """The bytes of a message, the same for equal manifests. Raises ParseError for a field that the table does not have."""
        message = json_format.ParseDict(dict(manifest), self.message(kind)(), descriptor_pool=self._pool)
        whole: bytes = message.SerializeToString(deterministic=True)
        return whole

    def unpacked(self, kind: str, data: bytes) -> Mapping[str, object]:
        """The manifest that a message was packed from, by the table's names."""
        message = self.message(kind).FromString(data)
        return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=self._pool)

    def _made(self, made: list[tuple[str, descriptor_pb2.DescriptorProto]]) -> descriptor_pool.DescriptorPool:
        """A pool of their own: a program may use the messages' own files beside these."""
        pool = descriptor_pool.DescriptorPool()
        known = []
        for module in _WELL_KNOWN_FILES:
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
            known.append(module.DESCRIPTOR.name)
        embedded = [message for package, message in made if package == self._package]
        files = [(self._package, embedded), *((package, [message]) for package, message in made if package != self._package)]
        for number, (package, messages) in enumerate(files):
            name = f"{self._package.replace('.', '/')}-{number}.proto"
            file = descriptor_pb2.FileDescriptorProto(
                name=name, package=package, syntax="proto3", message_type=messages, dependency=known
            )
            pool.AddSerializedFile(file.SerializeToString())
            if package == self._package:
                known = [*known, name]
        return pool


def _message(package: str, line: str) -> tuple[str, descriptor_pb2.DescriptorProto]:
    """A line of the table, and in which package it is."""
    title, _, fields = line.partition(":")
    named, _, name = title.strip().rpartition(".")
    message = descriptor_pb2.DescriptorProto(name=name)
    for field in filter(None, fields.split(",")):
        called, number, kind = field.split()
        label = _FIELD.LABEL_REPEATED if kind.startswith("*") else _FIELD.LABEL_OPTIONAL
        added = message.field.add(name=called, number=int(number), label=label)
        if (plain := kind.lstrip("*")) in _SCALARS:
            added.type = _SCALARS[plain]
        else:
            added.type = _FIELD.TYPE_MESSAGE
            added.type_name = f".google.protobuf.{plain}" if plain in _WELL_KNOWN else f".{package}.{plain}"
    return named or package, message
