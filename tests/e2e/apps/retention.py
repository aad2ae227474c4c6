"""A task with the retention of all, and one with its own."""

import forebay

app = forebay.App()


@app.task()
def work(x):
    if x == "bad":
        raise forebay.Permanent("no good")
    return x


@app.task(retention="1h")
def keep(x):
    return x
