"""What the OpenAPI document says of POST /v1/predict/{task}."""

from typing import Any

_HEADERS = (
    (
        "X-Request-Timeout",
        "the deadline: seconds, or a text like 250ms; else the task's, else request_deadline",
    ),
    ("Forebay-Priority", "high, normal, low or 0 (most urgent) to 9; else the task's"),
    ("Forebay-Budget", "ci=300/s: all who name this budget share its rate, jobs and requests alike"),
    ("Accept", "text/event-stream: the parts of the output as they come, then done or error"),
    ("Prefer", "respond-async: 202 with a durable job in place of an answer"),
)


def describe_predict(operation: dict[str, Any]) -> None:
    """Say what the table of routes cannot."""
    anything: dict[str, Any] = {"schema": {}}
    operation["description"] = (
        "The body is the payload, the answer is the output. Nothing is stored. Refused at once when it "
        "cannot be done within its deadline, with the time to come back and the deadline that would do. "
        "Idempotency-Key is honoured with Prefer: respond-async only."
    )
    operation["parameters"] += [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": text}
        for name, text in _HEADERS
    ]
    operation["requestBody"] = {"required": True, "content": {"application/json": anything}}
    operation["responses"]["200"] = {
        "description": "The output: JSON, or the bytes of a Blob with its media type",
        "content": {"application/json": anything, "*/*": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {
            name: {"schema": {"type": "string"}}
            for name in ("Forebay-Request-Id", "Forebay-Level", "Server-Timing")
        },
    }
    operation["responses"]["202"] = {
        "description": "A durable job (Prefer: respond-async)",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/JobView"}}},
    }
