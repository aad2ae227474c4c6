"""Tasks that fail while a file says so, with breakers, and what stands in for them."""

import os

import forebay

app = forebay.App()
SHORT = {"failures": 2, "window": "60s", "open_for": os.environ.get("GUARDED_OPEN_FOR", "1s")}
features = forebay.Breaker("features", **SHORT)


def call(name: str, text: str) -> str:
    with open(os.environ["E2E_LEDGER"], "a") as ledger:
        ledger.write(f"start {name} 1 {os.getpid()} 0\n")
    with open(os.environ["GUARDED_STATE"]) as state:
        if state.read().strip() == "down":
            raise ConnectionError(f"{name} is down")
    return f"{name} {text}"


@app.task()
def small(text: str) -> str:
    return f"small {text}"


@app.task(breaker=forebay.Breaker(**SHORT), fallback=small, attempts_max=5, backoff="50ms")
def big(text: str) -> str:
    return call("big", text)


@app.task(breaker=forebay.Breaker(**SHORT), fallback="later", attempts_max=5, backoff="50ms")
def canned(text: str) -> str:
    return call("canned", text)


@app.task(breaker=forebay.Breaker(**SHORT), attempts_max=3, backoff="50ms")
class Waits:
    def predict(self, items: list[str]) -> list[str]:
        return [call("waits", text) for text in items]


@app.task(backoff="50ms")
def look_up(key: str) -> str:
    with features:
        return call("features", key)
