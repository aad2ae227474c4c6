"""Stands for an application of yours."""

import forebay

app = forebay.App()


@app.task(batch_max=16, batch_wait="20ms", timeout="1m")
class Shout:
    """Upper case, many at a time, as a model would do it."""

    def load(self, device: forebay.Device) -> None:
        self.suffix = "!"  # load weights here: once per worker process

    def predict(self, items: list[str]) -> list[str]:
        return [item.upper() + self.suffix for item in items]
