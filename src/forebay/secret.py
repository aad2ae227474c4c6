"""own_secret: a signing secret that a store keeps for itself when nobody set one; new_secret."""

import base64
import contextlib
import os
import secrets
from pathlib import Path

from forebay.core.signing_keys import PREFIX, read_keys
from forebay.errors import ConfigError

NEW_KEY_BYTES = 32


def new_secret() -> str:
    """Return a new secret as text."""
    return PREFIX + base64.b64encode(secrets.token_bytes(NEW_KEY_BYTES)).decode()


def own_secret(directory: Path, name: str) -> tuple[tuple[bytes, ...], Path, bool]:
    """Return the keys in a secret file of a data directory, the file, and whether it was made just now.

    The file is made, mode 0600 and durable, when it is not there. Raises ConfigError with one line that
    names the file and never its content.
    """
    path = directory / name
    try:
        try:
            text, made = path.read_text("ascii").strip(), False
        except FileNotFoundError:
            text, made = new_secret(), True
            _write(path, text)
        return read_keys(text), path, made
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or 'cannot be used'}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: must hold a secret, whsec_...") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


def _write(path: Path, text: str) -> None:
    # Beside it first: a crash in between must not leave half a secret under the name.
    beside = path.with_name(f".{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(handle, f"{text}\n".encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    beside.replace(path)
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
