from unittest.mock import Mock

from proxy.admin.app import own_routes
from proxy.admin.in_force import LimitsInForce
from proxy.policies.layers import FilePolicies
from tests.proxy.policies.layered import a_service


def test_own_paths_take_more_than_get_only_to_change_things() -> None:
    routes = own_routes(a_service(FilePolicies({}, {}, {}), {}), Mock(), LimitsInForce())
    served = {(route.method, route.path) for route in routes}
    assert served == {
        ("GET", "/sluice/explain"),
        ("GET", "/sluice/limits"),
        ("PUT", "/sluice/limits"),
        ("DELETE", "/sluice/limits"),
        ("GET", "/sluice/policies"),
        ("PUT", "/sluice/policies"),
        ("GET", "/sluice/audit"),
        ("GET", "/sluice/backup"),
    }
