"""LitServe: `timeout_s` gives up what has waited so long, `batch_wait_s` is how long a batch waits for more."""

import litserve
from slept import BATCH, PORT, SETTINGS, predict


class Api(litserve.LitAPI):
    """Batches are lists of what came."""

    def setup(self, device):
        pass

    def decode_request(self, request):
        return request

    def batch(self, inputs):
        return list(inputs)

    def predict(self, x):
        return predict(x)

    def unbatch(self, output):
        return output

    def encode_response(self, output):
        return output


if __name__ == "__main__":
    told = {"timeout": SETTINGS["timeout_s"]} if "timeout_s" in SETTINGS else {}
    api = Api(max_batch_size=BATCH, batch_timeout=SETTINGS.get("batch_wait_s", 0.0))
    server = litserve.LitServer(api, accelerator="cpu", **told)
    server.run(host="127.0.0.1", port=PORT, log_level="warning", generate_client_file=False)
