"""A breaker that all workers share: a pool for plain functions, and a class in a process of its own."""

import os

import forebay

app = forebay.App()
prices = forebay.Breaker(
    "prices", failures=2, window="60s", open_for=os.environ["SHARING_OPEN_FOR"], shared=True
)


def look_up(name: str) -> str:
    with prices:
        with open(os.environ["E2E_LEDGER"], "a") as ledger:
            ledger.write(f"start {name} 1 {os.getpid()} 0\n")
        with open(os.environ["SHARING_STATE"]) as state:
            if state.read().strip() == "down":
                raise ConnectionError("the prices are away")
    return name


@app.task(backoff="50ms", attempts_max=20)
def price(text: str) -> str:
    return look_up("price")


@app.task(replicas=1, backoff="50ms", attempts_max=20)
class Quote:
    def predict(self, items: list[str]) -> list[str]:
        return [look_up("quote") for _ in items]


@app.task(attempts_max=1)
def leave(text: str) -> str:
    os._exit(3)
