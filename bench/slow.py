"""The application of the recovery bench: notes each run's process, then takes a second."""

import os
import time
from pathlib import Path

import forebay

app = forebay.App()


@app.task()
def echo(body: dict[str, str]) -> str:
    """Note the run and take a second."""
    with (Path(body["mark"]) / "runs").open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(1.0)
    return "done"
