"""A handler that one input kills, for tests of quarantine."""

import ctypes
import os
import sys

import forebay

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from notes import note

app = forebay.App()


@app.task(attempts_max=3, backoff="50ms", version=os.environ.get("APP_VERSION", "1"))
def read(page, ctx: forebay.Context):
    """Reads any page; dies of a deadly one."""
    note("start", page, ctx.attempt)
    if page.startswith("deadly"):
        ctypes.string_at(0)
    return page


@app.task(batch_max=8, batch_wait="200ms")
class Pages:
    """Reads pages together; dies of a deadly one among them."""

    def predict(self, pages: list[str], ctx: forebay.Context) -> list[str]:
        for page in pages:
            note("start", page, ctx.attempt)
        if any(page.startswith("deadly") for page in pages):
            os._exit(1)
        return pages
