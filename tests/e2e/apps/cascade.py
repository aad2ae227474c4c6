"""Tasks that need a database which hangs when a file says so, with and without a breaker, and tasks that do not."""

import json
import os
import urllib.request

import forebay

app = forebay.App()
database = forebay.Breaker("database", failures=2, window="60s", open_for="1s")


def query(text: str, timeout_s: float) -> str:
    asked = urllib.request.Request(os.environ["DATABASE"], json.dumps(text).encode())
    with urllib.request.urlopen(asked, timeout=timeout_s) as answer:
        return json.loads(answer.read())["echo"]


@app.task(queue_max=50)
class Report:
    """Waits for the database as long as it takes."""

    def predict(self, items: list[str]) -> list[str]:
        return [query(text, 3600.0) for text in items]


@app.task(deadline="5s")
class Page:
    """Needs no database."""

    def predict(self, items: list[str]) -> list[str]:
        return [f"page {text}" for text in items]


@app.task(backoff="50ms", attempts_max=1000)
def look_up(text: str) -> str:
    with database:
        return query(text, 1.0)


@app.task()
def plain(text: str) -> str:
    return text.upper()
