"""Speech to text for spoken digits, with pocketsphinx and a grammar of ten words.

    forebay serve examples/transcribe.py

The acoustic model and the dictionary are inside the pocketsphinx wheel.
"""

import wave
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from modelkit import decoded, each

import forebay

app = forebay.App()

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
GRAMMAR = f"#JSGF V1.0;\ngrammar digits;\npublic <digits> = ( {' | '.join(WORDS)} )+;\n"
RATE = 16_000


@dataclass
class Audio:
    """A WAV file in base64: mono, 16 kHz, 16 bit."""

    wav_b64: str


@dataclass
class Transcript:
    text: str  # "four zero seven"
    digits: str  # "407"
    seconds: float  # of audio


@app.task(batch_max=16, batch_wait="20ms", timeout="10m", attempts_max=3, ttl="6h")
class Transcribe:
    """Spoken digits as text."""

    def load(self, device: forebay.Device) -> None:
        from pocketsphinx import Decoder

        # No language model: it is the largest part of the package, and the grammar replaces it.
        self._decoder: Any = Decoder(lm=None, loglevel="FATAL")
        self._decoder.add_jsgf_string("digits", GRAMMAR)
        self._decoder.activate_search("digits")

    def predict(self, items: list[Audio]) -> list[Transcript | forebay.Failed]:
        return each(self.transcribe, items)

    def transcribe(self, audio: Audio) -> Transcript:
        samples = _samples(decoded(audio.wav_b64, "wav_b64"))
        self._decoder.start_utt()
        try:
            # All of it at once (full_utt): loudness is then normalised over this clip alone, and what
            # is heard does not depend on the clips that came before it.
            self._decoder.process_raw(samples, no_search=False, full_utt=True)
        finally:
            self._decoder.end_utt()  # else the next clip would find an utterance open
        heard = self._decoder.hyp()
        words = heard.hypstr.split() if heard else []
        digits = "".join(str(WORDS.index(word)) for word in words)
        return Transcript(" ".join(words), digits, round(len(samples) / 2 / RATE, 3))


def _samples(data: bytes) -> bytes:
    try:
        with wave.open(BytesIO(data)) as sound:
            found = (sound.getnchannels(), sound.getsampwidth(), sound.getframerate())
            samples: bytes = sound.readframes(sound.getnframes())
    except (wave.Error, EOFError):
        raise forebay.Permanent("wav_b64 is not a WAV file of plain samples") from None
    if found != (1, 2, RATE):
        channels, width, rate = found
        raise forebay.Permanent(
            f"the audio has {channels} channels of {width * 8} bits at {rate} Hz;"
            f" this model takes 1 channel of 16 bits at {RATE} Hz"
        )
    if len(samples) < RATE // 5:  # pocketsphinx reports an internal error when no frame fits
        raise forebay.Permanent("the audio is shorter than 0.1 s")
    return samples
