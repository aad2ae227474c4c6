"""One entry each few seconds; its runs are written to the ledger outside, and each says when it was due."""

import os
import time

import forebay

app = forebay.App()


@app.every("2s", name="tick", payload="tick", missed=os.environ.get("APP_MISSED", "once"))
@app.task()
def write(what: str, context: forebay.Context) -> str:
    with open(os.environ["E2E_LEDGER"], "a") as ledger:
        ledger.write(f"start {context.job_id} {context.attempt} {os.getpid()} {time.time()}\n")
    return what
