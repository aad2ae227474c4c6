"""The JSON Schema of a payload and of an output: what it lets through at the door, the child can read.

msgspec's own schema leaves some of its rules out: a plain datetime is any text, the keys of a dict are
anything. They are added here, as formats whose meaning the door shares (server/formats.py), and as patterns.
NOT covered: what JSON Schema cannot say (a validator of pydantic, the length of bytes, floats that must be
a multiple of a fraction) fails in the child as `invalid_payload`.
"""

# Values of user code have no types here.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect as mi

from forebay.child.codec import adapter, has_pydantic
from forebay.core.task import FORMATS_BY
from forebay.declare.blob import SCHEMA, Blob
from forebay.declare.signature import Signature

Node = dict[str, Any]

_INTEGER_KEY = r"^-?(0|[1-9][0-9]*)$"
_NUMBER_KEY = r"^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]{1,2})?$"
_HASHABLE = ["string", "number", "boolean", "null"]
_BYTES = (mi.BytesType, mi.ByteArrayType, mi.MemoryViewType)
_FORMATS: tuple[tuple[type[mi.Type], str], ...] = (
    (mi.DateType, "date"),
    (mi.TimeDeltaType, "duration"),
    (mi.UUIDType, "uuid"),
    (mi.DecimalType, "decimal"),
)
_ZONED = {True: "", False: "-local", None: "-any"}  # with an offset, without, either


def input_schema(signature: Signature) -> dict[str, object]:
    """Return the JSON Schema of one payload; {} takes any JSON. Raises TypeError."""
    return _schema(signature.input_type, "validation")


def output_schema(signature: Signature) -> dict[str, object]:
    """Return the JSON Schema of one output. Raises TypeError."""
    return _schema(signature.output_type, "serialization")


def _schema(kind: Any, mode: str) -> dict[str, object]:
    if kind is Any:
        return {}
    if has_pydantic(kind):
        schema: Node = adapter(kind).json_schema(mode=mode)
        schema[FORMATS_BY] = "pydantic"
        return schema
    schema = msgspec.json.schema(kind, schema_hook=_any_schema)
    for info, node in _pairs(mi.type_info(kind), schema):
        _sharpen(info, node)
    schema[FORMATS_BY] = "msgspec"
    return schema


def _any_schema(kind: type) -> dict[str, Any]:
    if kind is Blob:
        return dict(SCHEMA)
    if kind is object:
        return {"$comment": "any JSON"}  # an empty schema would count as none
    raise NotImplementedError


def _pairs(root: mi.Type, schema: Node) -> Iterator[tuple[mi.Type, Node]]:
    """Yield each type with the node that describes it: the root, and the fields of every named type."""
    yield root, schema
    definitions: Node = schema.get("$defs", {})
    for named in _named(root, {}).values():
        names = [field.encode_name for field in named.fields]
        for node in definitions.values():
            shown: Node = node.get("properties", {})
            if "prefixItems" in node and len(node["prefixItems"]) in (len(names), len(names) + 1):
                yield from zip(
                    (f.type for f in named.fields), node["prefixItems"][-len(names) :], strict=True
                )
            elif names and node.get("title") == named.cls.__name__ and shown.keys() >= set(names):
                yield from ((field.type, shown[field.encode_name]) for field in named.fields)


def _named(info: Any, found: dict[Any, Any]) -> dict[Any, Any]:
    """Collect the types with fields, each once."""
    if hasattr(info, "fields"):
        if info.cls not in found:
            found[info.cls] = info
            for field in info.fields:
                _named(field.type, found)
        return found
    for part in ("type", "item_type", "key_type", "value_type"):
        if hasattr(info, part):
            _named(getattr(info, part), found)
    for parts in ("types", "item_types"):
        for one in getattr(info, parts, ()):
            _named(one, found)
    return found


def _sharpen(info: mi.Type, node: Any) -> None:
    """Add to the node of one type, and to what lies inside it, the rules that decoding has besides."""
    info = _bare(info)
    if not isinstance(node, dict) or "$ref" in node:
        return
    shape = _format(info)
    if shape:
        node["format"] = shape
    elif isinstance(info, mi.CollectionType):
        if isinstance(info, mi.SetType | mi.FrozenSetType) and isinstance(info.item_type, mi.AnyType):
            node["items"] = {"type": _HASHABLE}
        _sharpen(info.item_type, node.get("items"))
    elif isinstance(info, mi.TupleType):
        for one, inner in zip(info.item_types, node.get("prefixItems", ()), strict=False):
            _sharpen(one, inner)
    elif isinstance(info, mi.DictType):
        _sharpen(info.value_type, node.get("additionalProperties"))
        keys = _keys(_bare(info.key_type))
        if keys:
            node["propertyNames"] = keys
    elif isinstance(info, mi.UnionType):
        # Of each kind of JSON a union has one member at most, but for objects, which are named.
        for option in node.get("anyOf", ()):
            for one in info.types:
                if _json_kind(_bare(one)) == option.get("type"):
                    _sharpen(one, option)


def _bare(info: mi.Type) -> mi.Type:
    while isinstance(info, mi.Metadata):
        info = info.type
    return info


def _format(info: mi.Type) -> str:
    if isinstance(info, mi.DateTimeType):
        return "date-time" + _ZONED[info.tz]
    if isinstance(info, mi.TimeType):
        return "time" + _ZONED[info.tz]
    if isinstance(info, _BYTES):
        return "base64"
    return next((name for kind, name in _FORMATS if isinstance(info, kind)), "")


def _keys(info: mi.Type) -> Node:
    """Return the rule for the names of an object whose keys are no plain texts."""
    if isinstance(info, mi.IntType):
        return {"pattern": _INTEGER_KEY}
    if isinstance(info, mi.FloatType):
        return {"pattern": _NUMBER_KEY}
    values: list[Any] = []
    if isinstance(info, mi.LiteralType):
        values = list(info.values)
    elif isinstance(info, mi.EnumType):
        values = [member.value for member in info.cls]
    if any(isinstance(value, int) for value in values):
        return {"enum": [str(value) for value in values]}
    shape = _format(info)
    return {"format": shape} if shape else {}


def _json_kind(info: mi.Type) -> str:
    if _format(info):
        return "string"
    if isinstance(info, mi.CollectionType | mi.TupleType):
        return "array"
    return "object" if isinstance(info, mi.DictType) else ""
