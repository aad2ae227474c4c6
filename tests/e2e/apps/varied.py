"""Tasks with variants; the first call of each waits until a file says go."""

import os
import time

import forebay

app = forebay.App()


def wait_for_go() -> None:
    while not os.path.exists(os.environ["VARIED_GO"]):
        time.sleep(0.01)


class Small:
    def predict(self, items: list[int]) -> list[str]:
        return [f"small {item}" for item in items]


@app.task(batch_max=2, queue_max=20, variants=[forebay.Variant(Small, quality=0.9)], variants_stay="10m")
class Large:
    """Stays down for the whole test once it is down."""

    def predict(self, items: list[int]) -> list[str]:
        wait_for_go()
        return [f"large {item}" for item in items]


@app.task(queue_max=20, variants=[forebay.Variant(name="half")], variants_stay="200ms")
def brief(item: int, context: forebay.Context) -> int:
    """Comes back at once."""
    wait_for_go()
    return context.level
