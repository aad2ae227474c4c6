"""Tells what a file is from its bytes with Magika, a small network that needs some 10 to 20 ms of one core.

    forebay serve examples/filetype.py

The network is inside the magika wheel. A batch spares trips to the worker process, not computation:
on a CPU this network takes as long for 64 files at once as for 64 in a row.
"""

from dataclasses import dataclass
from typing import Any

from modelkit import decoded, each, thread_count

import forebay

app = forebay.App()


@dataclass
class Content:
    """A file's bytes in base64, or its text as it is: exactly one of the two."""

    data_b64: str | None = None
    text: str | None = None


@dataclass
class FileType:
    label: str  # "python"
    mime: str  # "text/x-python"
    score: float


@app.task(batch_max=16, batch_wait="10ms", timeout="30s", attempts_max=3, ttl="1h")
class DetectFileType:
    """The type of a file, from its content alone."""

    def load(self, device: forebay.Device) -> None:
        self._magika = _magika(thread_count())
        self.detect(Content(text="The first run of a network is slow; no job should be the one to wait."))

    def predict(self, items: list[Content]) -> list[FileType | forebay.Failed]:
        return each(self.detect, items)

    def detect(self, content: Content) -> FileType:
        found = self._magika.identify_bytes(_bytes_of(content))
        return FileType(str(found.output.label), found.output.mime_type, round(float(found.score), 4))


def _bytes_of(content: Content) -> bytes:
    if (content.data_b64 is None) == (content.text is None):
        raise forebay.Permanent("give exactly one of data_b64 and text")
    if content.text is not None:
        return content.text.encode("utf-8", "surrogatepass")
    return decoded(content.data_b64 or "", "data_b64")


def _magika(threads: int) -> Any:
    """Magika with a bounded number of threads.

    It has no argument for that and onnxruntime reads no variable for it, hence the override. Should
    the method get another name one day, Magika goes on with its default of a thread per core.
    """
    import onnxruntime
    from magika import Magika

    class Bounded(Magika):
        def _init_onnx_session(self) -> onnxruntime.InferenceSession:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
            return onnxruntime.InferenceSession(
                str(self._model_path), sess_options=options, providers=["CPUExecutionProvider"]
            )

    return Bounded()
