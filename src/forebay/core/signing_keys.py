"""read_keys: the text of webhook secrets -> the keys that messages are signed with."""

import base64

PREFIX = "whsec_"
KEY_BYTES_MIN, KEY_BYTES_MAX = 24, 64  # as Standard Webhooks has it
KEYS_MAX = 5  # each is one more signature in every message


def read_keys(text: str) -> tuple[bytes, ...]:
    """Return the keys of one or more `whsec_...` secrets with commas between them.

    Raises ValueError with the rule that is broken, as "must ..."; never with a part of the text.
    """
    words = [word.strip() for word in text.split(",")]
    if len(words) > KEYS_MAX:
        raise ValueError(f"must be at most {KEYS_MAX} secrets, not {len(words)}")
    return tuple(_key(word) for word in words)


def _key(word: str) -> bytes:
    if not word.startswith(PREFIX):
        raise ValueError(f"must begin with {PREFIX}")
    try:
        key = base64.b64decode(word.removeprefix(PREFIX), validate=True)
    except ValueError:
        raise ValueError(f"must be base64 behind {PREFIX}") from None
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise ValueError(f"must hold {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, not {len(key)}")
    return key
