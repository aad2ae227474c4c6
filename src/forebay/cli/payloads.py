"""Payloads of commands that send one again and again."""

import json
from pathlib import Path
from typing import Any

from forebay.cli.show import Stop, clean


def payload_of(text: str | None) -> Any:
    """Return JSON, of a file when it begins with @; None for none. Raises Stop for what is no JSON."""
    if text is None:
        return None
    try:
        return json.loads(Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text)
    except OSError as error:
        raise Stop(f"{clean(text, 200)}: {error.strerror}", 2) from None
    except (ValueError, RecursionError):
        raise Stop(f"PAYLOAD {clean(text, 60)!r}: not JSON; a text needs quotes: '\"hello\"'", 2) from None
