"""Forebay: the task says its batch and its deadline, and nothing else is set."""

import slept

import forebay

app = forebay.App()


@app.task(batch_max=slept.BATCH, deadline="200ms", replicas=1)
class Model:
    """One device."""

    def predict(self, items: list[dict]) -> list[dict]:
        return slept.predict(items)
