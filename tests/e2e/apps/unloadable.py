"""A model that never loads, and one that takes its time."""

import forebay

app = forebay.App()


@app.task()
class Broken:
    def load(self, device):
        raise RuntimeError("no weights")

    def predict(self, items: list) -> list:
        return items
