"""BentoML: `concurrency` is how many requests the service takes at once. Its batches want a list in each request."""

import bentoml
from slept import BATCH, SETTINGS, predict

traffic = {"max_concurrency": SETTINGS["concurrency"]} if "concurrency" in SETTINGS else {}


@bentoml.service(workers=1, traffic=traffic, logging={"access": {"enabled": False}})
class Model:
    """One process before the device."""

    @bentoml.api(batchable=True, max_batch_size=BATCH)
    def predict(self, inputs: list[dict]) -> list[dict]:
        return predict(inputs)
