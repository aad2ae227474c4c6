"""Three tasks whose version is that of the environment, one for each way to treat jobs of another one."""

import os

import forebay

app = forebay.App()
VERSION = os.environ["APP_VERSION"]


@app.task(version=VERSION)
def runs(x):
    return [x, VERSION]


@app.task(version=VERSION, on_version="wait")
def waits(x):
    return [x, VERSION]


@app.task(version=VERSION, on_version="fail")
def fails(x):
    return [x, VERSION]
