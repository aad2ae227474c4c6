"""A class with a range of replicas, each of whose items takes a tenth of a second."""

import time

import forebay

app = forebay.App()


@app.task(replicas="1..2")
class Nap:
    def predict(self, items):
        time.sleep(0.1)
        return items
