"""One server for all tests of a process."""

import psycopg
import pytest

from tests.brokers.postgres.server import PostgresServer


@pytest.fixture(scope="session")
def server():
    one = PostgresServer()
    try:
        yield one.make().start()
    finally:
        one.stop()


@pytest.fixture
def asked(monkeypatch):
    """Every statement with its parameters, as the driver got it."""
    kept = {}
    execute = psycopg.AsyncCursor.execute

    async def noting(self, query, params=None, **more):
        kept.setdefault(query, params)
        return await execute(self, query, params, **more)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", noting)
    return kept
