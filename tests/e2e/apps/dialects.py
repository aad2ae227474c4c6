"""Tasks as clients of other servers find them."""

import time
from typing import Any, TypedDict

import forebay

app = forebay.App()


class Prompt(TypedDict):
    prompt: str


@app.task()
def caption(given: Prompt) -> str:
    return f"a picture of {given['prompt']}"


@app.task()
def shout(text: str) -> str:
    return text.upper()


@app.task()
def slow(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


@app.task(attempts_max=1)
def broken(text: str) -> str:
    raise forebay.Permanent("no such colour")


@app.task()
def chat(body: dict[str, Any]) -> dict[str, Any]:
    said = body["messages"][-1]["content"]
    message = {"role": "assistant", "content": f"you said {said}"}
    return {
        "id": "c-1", "object": "chat.completion", "created": 1, "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }  # fmt: skip


@app.task(batch_max=16)
class Embed:
    def predict(self, items: list[str]) -> list[list[float]]:
        return [[float(len(item)), 0.5] for item in items]


@app.task(batch_max=16)
class Double:
    def predict(self, items: list[list[float]]) -> list[list[float]]:
        return [[2 * one for one in item] for item in items]


@app.task()
def add(given: dict[str, Any]) -> dict[str, Any]:
    rows = zip(given["INPUT0"], given["INPUT1"], strict=True)
    return {"OUTPUT0": [[a + b for a, b in zip(x, y, strict=True)] for x, y in rows], "NOTE": "added"}
