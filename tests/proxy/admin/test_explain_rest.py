"""`/sluice/explain`."""

import pytest

from tests.proxy.admin_client import Admin


async def test_each_direction_is_explained_for_its_own_client(make_admin) -> None:
    admin: Admin = await make_admin(
        limits={
            "producers": {"meter": {"publish": {"messages": 5}}},
            "each_subscription": {"dispatch": {"messages": 6}},
            "resource_groups": {"gold": {"namespaces": ["acme/shop"]}},
        },
        admission={"subscribe_rate_per_consumer": "5/30s"},
    )
    query = "topic=acme/shop/orders&producer=meter&subscription=audit&role=r&address=10.1.2.3"
    status, answer = await admin.ask("GET", f"/sluice/explain?{query}")
    assert (status, answer["topic"], answer["exempt"]) == (200, "persistent://acme/shop/orders", False)
    assert answer["resource_group"] == {"name": "gold", "member": "namespace acme/shop", "origin": "file"}
    held = {
        direction: [
            (level["level"], value["limit"])
            for level in answer[direction]
            for value in level["values"]
            if value["state"] == "holds"
        ]
        for direction in ("publish", "dispatch")
    }
    assert held == {"publish": [("producer", {"messages": 5})], "dispatch": [("subscription", {"messages": 6})]}
    assert [level["level"] for level in answer["publish"] if not level["asked"]] == ["subscription"]


async def test_subscribe_rates_of_the_file_are_explained(make_admin) -> None:
    admin: Admin = await make_admin(limits={"namespaces": {"acme/shop": {"subscribe": "5/30s"}}})
    _, answer = await admin.ask("GET", "/sluice/explain?topic=acme/shop/orders")
    (value,) = answer["subscribe"]["values"]
    assert (value["limit"], value["state"], value["origin"]) == ({"messages": "5/30s"}, "holds", "file")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("", "topic: is needed: persistent://tenant/namespace/topic"),
        ("topic=a://b", "is not a topic name"),
        ("topic=x&address=ten", "address: 'ten' is not an address of a client"),
        ("topic=x&role=a%0Ab", "role: write it in one line"),
        ("topic=x&topics=y", "'topics' is not known here"),
    ],
)
async def test_a_wrong_question_is_told_what_is_wrong(make_admin, query: str, problem: str) -> None:
    admin: Admin = await make_admin()
    status, answer = await admin.ask("GET", f"/sluice/explain?{query}")
    assert (status, problem in answer["reason"]) == (400, True), answer
