"""The application the job benches serve: one function that answers what it was asked, 1 KB in, 1 KB out."""

import forebay

app = forebay.App()


@app.task()
def echo(body: dict[str, object]) -> dict[str, object]:
    """Return the payload."""
    return body
