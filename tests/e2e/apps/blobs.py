"""Tasks that take and give blobs."""

import time

import forebay

app = forebay.App()


@app.task()
def copy(blob: forebay.Blob) -> bytes:
    return blob.read()


@app.task()
def say(text: str) -> str:
    return text


@app.task(attempts_max=9)
def slowly(blob: forebay.Blob) -> forebay.Blob:
    time.sleep(0.02)
    return forebay.Blob.of(blob.read() + b"!")
