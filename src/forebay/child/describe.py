"""Describe: import the application once and say what it declares, as one JSON document."""

import dataclasses
import json
import os
import re

import msgspec

from forebay.child import guard
from forebay.child.codec import make_decoder, make_output_check
from forebay.child.loading import LoadError, load_app
from forebay.child.schemas import input_schema, output_schema
from forebay.child.texts import safe_text
from forebay.core.task import TaskSpec
from forebay.declare import Task
from forebay.node.frames import AppDescription, DescribeFailed


def describe_to_stdout(reference: str) -> None:
    """Write an AppDescription or a DescribeFailed to what is stdout now, kept aside for it alone: what
    user code prints goes to stderr."""
    fd = os.dup(1)
    os.dup2(2, 1)
    guard.dump_crashes()
    document = msgspec.json.encode(describe(reference))
    with os.fdopen(fd, "wb") as out:
        out.write(document)
    # Threads, programs and exit handlers of user code have no say in how long a description takes.
    guard.end_group()


def describe(reference: str) -> AppDescription | DescribeFailed:
    """Return what the application declares, or why it cannot be told."""
    try:
        app = load_app(reference)
        tasks = tuple(_spec(task) for task in app.tasks.values())
        return AppDescription(reference, tasks, app.crons, tuple(app.pipelines))
    except LoadError as error:
        return DescribeFailed(str(error), error.where)


def _spec(task: Task) -> TaskSpec:
    name = task.spec.name
    try:
        make_decoder(task.signature.input_type)
        schema = input_schema(task.signature)
    except Exception as error:
        raise LoadError(f"task {name}: its input cannot be described: {_why(error)}") from None
    try:
        output = output_schema(task.signature)
    except Exception as error:
        raise LoadError(f"task {name}: its output cannot be described: {_why(error)}") from None
    canned = task.spec.canned
    unfit = make_output_check(task.signature.output_type)
    if canned is not None and unfit is not None and (why := unfit(json.loads(canned), canned)):
        raise LoadError(f"task {name}: fallback does not fit what it returns: {why}")
    return dataclasses.replace(task.spec, input_schema=schema, output_schema=output)


def _why(error: Exception) -> str:
    """Return why a type has no schema. msgspec's own words go on to hooks that nobody here can set."""
    text = safe_text(error)
    named = re.search(r"<class '[^']+'> is not supported|Type unsupported: .+", text)
    if named is None:
        return text
    return f"{named[0].strip()}; take JSON types, a dataclass, TypedDict, msgspec.Struct or pydantic model"
