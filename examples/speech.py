"""Speaks digits with espeak-ng, so that what a recogniser hears has a known text.

Try it: `python examples/speech.py "4 0 7 9" digits.wav`.
"""

import subprocess
import sys
import tempfile
import wave
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from random import Random

import numpy

RATE = 16_000  # what the acoustic model was trained on; espeak-ng speaks at 22,050
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

# The synthetic voice that pocketsphinx hears best; others, and a slower one, cost it up to half of
# the digits. It was trained on people.
VOICE, WORDS_PER_MINUTE = "en-us+f2", 160


def say_digits(digits: str) -> bytes:
    """A mono WAV, 16 kHz, 16 bit, in which `digits` ("4079") are spoken one by one."""
    unknown = set(digits) - set("0123456789")
    if unknown or not digits:
        raise ValueError(f"only digits can be said here, not {digits!r}")
    return _wav(_resampled(*_spoken(" ".join(WORDS[int(digit)] for digit in digits))))


def clips(count: int, seed: int = 7, length: int = 6) -> list[tuple[str, bytes]]:
    """`count` pairs of digits and the WAV that says them."""
    rng = Random(seed)
    spoken = ["".join(rng.choice("0123456789") for _ in range(length)) for _ in range(count)]
    return [(digits, say_digits(digits)) for digits in spoken]


def accuracy(known: Sequence[str], heard: Sequence[str]) -> float:
    """1 - (wrong + missing + extra digits) / digits said: the usual word accuracy, which can fall below 0."""
    said = sum(map(len, known))
    return 1 - sum(map(_distance, known, heard)) / said if said else 1.0


def _distance(left: str, right: str) -> int:
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def _spoken(text: str) -> tuple[numpy.ndarray, int]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"  # to a pipe it would write a header with a made-up length
        command = ["espeak-ng", "-v", VOICE, "-s", str(WORDS_PER_MINUTE), "-w", str(path), text]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        except FileNotFoundError:
            raise RuntimeError("espeak-ng is missing: apt-get install espeak-ng (Debian, Ubuntu)") from None
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"espeak-ng failed: {error.stderr.strip()}") from None
        with wave.open(str(path)) as sound:
            samples = numpy.frombuffer(sound.readframes(sound.getnframes()), dtype="<i2")
            return samples, sound.getframerate()


def _resampled(samples: numpy.ndarray, rate: int) -> numpy.ndarray:
    """At RATE, by cutting the spectrum: what lies above half of RATE goes, nothing folds back."""
    length = len(samples) * RATE // rate
    spectrum = numpy.fft.rfft(samples.astype(float))[: length // 2 + 1]
    resampled = numpy.fft.irfft(spectrum, length) * (length / len(samples))
    return numpy.clip(numpy.round(resampled), -32768, 32767).astype("<i2")


def _wav(samples: numpy.ndarray) -> bytes:
    out = BytesIO()
    with wave.open(out, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(RATE)
        sound.writeframes(samples.tobytes())
    return out.getvalue()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit('usage: python speech.py "4 0 7 9" out.wav')
    try:
        Path(sys.argv[2]).write_bytes(say_digits("".join(sys.argv[1].split())))
    except (RuntimeError, ValueError, OSError) as error:
        sys.exit(f"speech: {error}")
