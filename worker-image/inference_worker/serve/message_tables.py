"""Protocol buffers' messages from tables of their fields, without generated code.

They are kept in a pool of their own, so that a program may use another copy beside this. Server reflection tells callers what is in
it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

POOL = descriptor_pool.DescriptorPool()

_SCALARS: dict[str, Any] = {
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "int32": 5,
    "int64": 3,
    "uint32": 13,
    "uint64": 4,
    "float": 2,
    "double": 1,
}
_MESSAGE: Any = 11
_ENUM: Any = 14
_OPTIONAL: Any = 1
_REPEATED: Any = 3


@dataclass(frozen=True, slots=True)
class Table:
    """One file. `messages` has a line for each message, the inner ones first; `choices` names the choice of a message that has one.

    A field is name, number, type. A star is repeated, "->" a map from string, "|" a member of the choice, "%" an enum, and "." a
    message within this one. A service's methods are name, request, response, each on a line of its own; a star is a stream.
    """

    file: str
    package: str
    messages: str
    choices: Mapping[str, str] = field(default_factory=dict)
    enums: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)

    def add(self) -> None:
        """Add the file to the pool."""
        POOL.AddSerializedFile(_file(self).SerializeToString())

    def message(self, name: str) -> Any:
        """The class of a message."""
        return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"{self.package}.{name}"))


def _file(table: Table) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name=table.file, package=table.package, syntax="proto3")
    nested: dict[str, list[descriptor_pb2.DescriptorProto]] = {}
    for line in table.messages.replace(",\n  ", ", ").strip().splitlines():
        title, _, fields = line.partition(": ")
        outer, _, inner = title.partition(".")
        message = descriptor_pb2.DescriptorProto(name=inner or outer)
        for entry in filter(None, fields.split(", ")):
            _add_field(table, message, title, *entry.split(" "))
        if inner:
            nested.setdefault(outer, []).append(message)
            continue
        message.nested_type.extend(nested.get(outer, ()))
        file.message_type.append(message)
    _add_enums(table, file)
    for name, methods in table.services.items():
        service = file.service.add(name=name)
        for line in methods.strip().splitlines():
            _add_method(table, service, *line.split())
    return file


def _add_enums(table: Table, file: descriptor_pb2.FileDescriptorProto) -> None:
    for title, names in table.enums.items():
        outer, _, inner = title.rpartition(".")
        owner = next((message for message in file.message_type if message.name == outer), file)
        kinds = owner.enum_type.add(name=inner)
        for number, name in enumerate(names):
            kinds.value.add(name=name, number=number)


def _add_method(table: Table, service: descriptor_pb2.ServiceDescriptorProto, name: str, request: str, response: str) -> None:
    service.method.add(
        name=name,
        input_type=f".{table.package}.{request.lstrip('*')}",
        output_type=f".{table.package}.{response.lstrip('*')}",
        client_streaming=request.startswith("*"),
        server_streaming=response.startswith("*"),
    )


def _add_field(table: Table, message: descriptor_pb2.DescriptorProto, title: str, name: str, number: str, kind: str) -> None:
    head, *tail = name.split("_")
    # As protoc writes it: tools such as grpcurl print a field by it.
    json_name = head + "".join(part.capitalize() for part in tail)
    field_ = message.field.add(name=name, number=int(number), label=_OPTIONAL, json_name=json_name)
    if kind.startswith("*"):
        field_.label = _REPEATED
        kind = kind[1:]
    elif kind.startswith("|"):
        if not message.oneof_decl:
            message.oneof_decl.add(name=table.choices[title])
        field_.oneof_index = 0
        kind = kind[1:]
    elif kind.startswith("->"):
        kind = _map_entry(table, message, title, name, kind[2:], field_)
    if kind in _SCALARS:
        field_.type = _SCALARS[kind]
    elif kind.startswith("%"):
        field_.type, field_.type_name = _ENUM, f".{table.package}.{kind[1:]}"
    else:
        field_.type = _MESSAGE
        field_.type_name = f".{table.package}.{title}{kind}" if kind[0] == "." else f".{table.package}.{kind}"


def _map_entry(
    table: Table,
    message: descriptor_pb2.DescriptorProto,
    title: str,
    name: str,
    value: str,
    field_: descriptor_pb2.FieldDescriptorProto,
) -> str:
    entry = message.nested_type.add(name=f"{name.title()}Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=_OPTIONAL, type=_SCALARS["string"])
    entry.field.add(name="value", number=2, label=_OPTIONAL, type=_MESSAGE, type_name=f".{table.package}.{value}")
    field_.label = _REPEATED
    return f"{title}.{name.title()}Entry" if "." in title else f".{name.title()}Entry"
