"""Groups of calls: what is stored by itself is answered at once, and stored once whatever becomes of the others."""

import asyncio

import pytest

from forebay.brokers.shared.committer import Committer, Kind, Op
from forebay.brokers.shared.news import News


def test_what_was_stored_by_itself_is_not_stored_again_when_what_came_with_it_fails():
    async def check():
        stored = []

        async def one_step(group):
            if group[0].kind is Kind.LEASE:
                return None
            stored.append("alone")
            return [["entered"]], News()

        async def merged(tx, kind, items, terms, now):
            stored.append(kind)
            raise ValueError("no")

        class Store:
            async def write(self, work, *, now):
                return await work(None), News()

        committer = Committer(Store(), merged, lambda news: None, one_step=one_step)
        entered = committer.put(Op(Kind.ENQUEUE, 0.0, ["job"]))
        leased = committer.put(Op(Kind.LEASE, 0.0, terms=("task", 1, 30.0, "w")))
        assert await entered == ["entered"]
        with pytest.raises(ValueError, match="no"):
            await leased
        assert stored == ["alone", Kind.LEASE]

    asyncio.run(check())
