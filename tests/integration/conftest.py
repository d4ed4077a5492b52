"""Tests that run on both databases: those of a module that says `BOTH_STORES = True`.

On PostgreSQL the gate runs those that are marked `postgres`; the others do with the long ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.builders.postgres import shared_postgres
from tests.builders.stores import Chosen, StoreKind


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if not getattr(metafunc.module, "BOTH_STORES", False):
        return
    in_gate = metafunc.definition.get_closest_marker("postgres") is not None
    other = pytest.param(StoreKind.POSTGRESQL, marks=() if in_gate else (pytest.mark.long,))
    metafunc.parametrize("store_kind", [StoreKind.SQLITE, other], indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def store_kind(request: pytest.FixtureRequest) -> Iterator[StoreKind]:
    """The database of all servers that are made while it holds; module fixtures ask for it."""
    kind = StoreKind(getattr(request, "param", StoreKind.SQLITE))
    if kind is StoreKind.POSTGRESQL:
        shared_postgres()
    Chosen.kind = kind
    yield kind
    Chosen.kind = StoreKind.SQLITE
