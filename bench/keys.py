"""What a key costs a request, in CPU time of the process: the check alone, and with a tenant's quota.

python bench/keys.py [--rounds 200000]
"""

import argparse
import json
import time

from forebay.brokers.memory import MemoryBroker
from forebay.core.quota import Quota
from forebay.core.tenant import Held, Limits
from forebay.keys import new_key, read_ring
from forebay.server.access import TENANT_HEADER, Watchman, rate_fields
from forebay.server.caller import LOCAL, set_caller

ROUNDS = 200_000


def cost(name, step, rounds):
    """Print the median of five runs, less the loop itself."""
    found = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(rounds):
            pass
        empty = time.process_time() - began
        began = time.process_time()
        for _ in range(rounds):
            step()
        found.append((time.process_time() - began - empty) / rounds * 1e6)
    print(f"{name:46} {sorted(found)[2]:6.2f} us")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each of five runs")
    rounds = parser.parse_args().rounds
    keys = [new_key() for _ in range(1_000)]
    ring = read_ring(
        json.dumps({key: {"tenant": f"t{at}", "rate": "1000/s"} for at, key in enumerate(keys)}), None
    )
    keyed, open_ = Watchman(ring), Watchman(None)
    heads = {b"host": b"x", b"content-type": b"application/json"}
    with_key = {**heads, b"authorization": b"Bearer " + keys[500].encode()}
    submit = {"method": "POST", "path": "/v1/jobs"}
    show = {"method": "GET", "path": "/v1/jobs/0190a000-0000-7000-8000-00000000dead/result"}

    def without():
        if open_.watches or TENANT_HEADER in heads:
            raise AssertionError
        set_caller(LOCAL)

    def checked(asked):
        set_caller(keyed.admit(asked, with_key, now=1.0))

    cost("no keys configured", without, rounds)
    cost("a key, POST /v1/jobs", lambda: checked(submit), rounds)
    cost("a key, GET /v1/jobs/{id}/result", lambda: checked(show), rounds)
    broker, quota = MemoryBroker(), Quota(Limits(1e9, 1e9, 1e12, 10**9, 10**12))

    def quoted():
        held = broker.holding_now("t", now=1.0) or Held()
        quota.look(jobs=1, size_b=100, held=held, now=1.0, jitter=0.5)
        quota.take(jobs=1, size_b=100, now=1.0)

    cost("a quota with every limit, per submission", quoted, rounds)
    cost("RateLimit fields, per answer", lambda: rate_fields(quota, now=1.0), rounds)


if __name__ == "__main__":
    main()
