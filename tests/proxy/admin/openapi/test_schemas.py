"""Types as JSON Schema."""

from typing import TypedDict

import msgspec
import pytest
from pydantic import BaseModel

from proxy.admin.openapi import Schemas, first_paragraph
from proxy.config.limits import ResourceGroupLimits
from proxy.policies.bodies import ResourceGroup


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    """The inner one.

    Args:
        number: Of it.
    """

    number: int


class Outer(TypedDict):
    inner: Inner | None


class Section(BaseModel):
    rates: dict[str, int] = {}


def test_what_has_a_name_is_put_aside_and_pointed_to() -> None:
    schemas = Schemas()
    assert schemas.of(Outer) == {"$ref": "#/components/schemas/Outer"}
    assert schemas.of(Section) == {"$ref": "#/components/schemas/config.Section"}
    assert schemas.components.keys() == {"Outer", "Inner", "config.Section"}
    assert schemas.components["Inner"]["additionalProperties"] is False


def test_of_docstrings_only_what_callers_need_is_told() -> None:
    schemas = Schemas()
    schemas.of(Inner)
    assert schemas.components["Inner"]["description"] == "The inner one."
    assert first_paragraph("One\n    sentence.\n\n    More.") == "One sentence."


def test_alternatives_may_be_of_both_kinds_and_null() -> None:
    (outer, other, null) = Schemas().of(Outer | Section | None)["anyOf"]
    assert (outer["$ref"][-5:], other["$ref"][-14:], null) == ("Outer", "config.Section", {"type": "null"})


def test_a_model_of_the_configuration_is_told_from_a_body_of_pulsars() -> None:
    schemas = Schemas()
    schemas.of(ResourceGroup)
    schemas.of(ResourceGroupLimits)
    assert {"ResourceGroup", "config.ResourceGroupLimits"} <= schemas.components.keys()


def test_two_types_of_one_name_are_an_error() -> None:
    schemas = Schemas()
    schemas.of(Inner)
    with pytest.raises(ValueError, match="two types are called Inner"):
        schemas.of(msgspec.defstruct("Inner", [("other", str)]))
