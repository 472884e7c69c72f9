"""Types as JSON Schema: msgspec's and pydantic's, as they read and write them."""

from inspect import cleandoc
from types import UnionType
from typing import Any, get_args, get_origin

import msgspec
from pydantic import BaseModel

_REF = "#/components/schemas/{}"
_OF_PYDANTIC = "config."
"""Before the names of the configuration's models: some are called as bodies of Pulsar's are."""


class Schemas:
    """Makes them, and puts aside all that have a name."""

    def __init__(self) -> None:
        self.components: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type.

        Raises:
            ValueError: If two types have one name.
        """
        if get_origin(kind) is UnionType:
            return {"anyOf": [self.of(one) for one in get_args(kind)]}
        is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
        schema, named = _by_pydantic(kind) if is_model else _by_msgspec(kind)
        for name, component in named.items():
            told = _told(component)
            if self.components.setdefault(name, told) != told:
                raise ValueError(f"two types are called {name}: rename one")
        return schema


def _by_pydantic(kind: type[BaseModel]) -> tuple[dict[str, Any], dict[str, Any]]:
    schema = kind.model_json_schema(ref_template=_REF.format(_OF_PYDANTIC + "{model}"))
    named = {_OF_PYDANTIC + name: one for name, one in schema.pop("$defs", {}).items()}
    name = _OF_PYDANTIC + kind.__name__
    return {"$ref": _REF.format(name)}, named | {name: schema}


def _by_msgspec(kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    (schema,), named = msgspec.json.schema_components([kind], ref_template=_REF.format("{name}"))
    return schema, named


def _told(component: dict[str, Any]) -> dict[str, Any]:
    """The rest of a docstring is for who reads the code."""
    if "description" in component:
        return component | {"description": first_paragraph(component["description"])}
    return component


def first_paragraph(text: str) -> str:
    """What a docstring says first, in one line."""
    return " ".join(cleandoc(text).partition("\n\n")[0].split())
