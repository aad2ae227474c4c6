"""Ray Serve: `ongoing` calls of a replica, `queued` ones before it, `batch_wait_s` for more in a batch."""

import os

import ray
from ray import serve
from ray.serve.config import BackpressureConfig
from ray.serve.schema import LoggingConfig
from slept import BATCH, PORT, SETTINGS, predict
from starlette.requests import Request

limits = {}
if "ongoing" in SETTINGS:
    limits["max_ongoing_requests"] = SETTINGS["ongoing"]
if "queued" in SETTINGS:
    limits["max_queued_requests"] = SETTINGS["queued"]
    limits["backpressure_config"] = BackpressureConfig(status_code=429, retry_after_s=1)
wait = {"batch_wait_timeout_s": SETTINGS["batch_wait_s"]} if "batch_wait_s" in SETTINGS else {}


@serve.deployment(
    num_replicas=1,
    ray_actor_options={"num_cpus": 0.5},
    logging_config=LoggingConfig(enable_access_log=False),
    **limits,
)
class Model:
    """One replica before the device; the call blocks its loop, as in Ray's own examples."""

    @serve.batch(max_batch_size=BATCH, **wait)
    async def batched(self, items):
        return predict(items)

    async def __call__(self, request: Request):
        return await self.batched(await request.json())


if __name__ == "__main__":
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=200 << 20,
        logging_level="error",
        log_to_driver=False,
        _temp_dir=os.environ["PEER_DATA"],
    )
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    serve.run(Model.bind(), blocking=True)
