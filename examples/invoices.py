"""Reads invoice pages: text detection and recognition with RapidOCR, then the fields that matter.

    pip install -r examples/requirements.txt
    forebay serve examples/invoices.py

The networks (PP-OCRv6 small, run by onnxruntime on the CPU) are inside the rapidocr wheel: nothing is
fetched when the model loads.
"""

import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from modelkit import decoded, each, thread_count
from PIL import Image, ImageDraw, ImageFont, ImageOps

import forebay

app = forebay.App()

MAX_PIXELS = 12_000_000  # A4 at 300 dots per inch has 8.7 million
MAX_RATIO = 8  # of the sides: beyond it, it is not a page, and scaling it up would cost gigabytes


@dataclass
class InvoicePage:
    """One page as PNG or JPEG, in base64.

    There is no file path on purpose: whoever may submit a job could then read the server's files.
    """

    image_b64: str


@dataclass
class Line:
    text: str
    confidence: float
    box: list[int]  # left, top, right, bottom, in pixels of the page


@dataclass
class Invoice:
    lines: list[Line] = field(default_factory=list)
    invoice_number: str | None = None
    total: str | None = None  # "1234.50"
    currency: str | None = None  # "EUR"


@app.task(batch_max=4, batch_wait="20ms", timeout="2m", attempts_max=3, ttl="6h")
class ReadInvoice:
    """The lines of text on an invoice page, its number, and the total due."""

    def load(self, device: forebay.Device) -> None:
        # Imported here and not above, so that describing the application stays cheap.
        import cv2
        from rapidocr import RapidOCR

        threads = thread_count()
        cv2.setNumThreads(threads)
        self._ocr = RapidOCR(params=_settings(threads))
        self._ocr(_warm_up_page())  # the networks load at first use: now, not during the first job

    def predict(self, items: list[InvoicePage]) -> list[Invoice | forebay.Failed]:
        return each(self.read, items)

    def read(self, page: InvoicePage) -> Invoice:
        image = opened(decoded(page.image_b64, "image_b64"))
        return parsed(_lines(self._ocr(image)))


def _settings(threads: int) -> dict[str, Any]:
    return {
        "Global.log_level": "error",  # a blank page is not worth a warning
        "Global.use_cls": False,  # tells upside-down lines apart; pages from a scanner are upright
        "EngineConfig.onnxruntime.intra_op_num_threads": threads,
        "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        # Detection on at most 960 pixels, and words recognised one by one at their own width: an
        # invoice is mostly short numbers, and padding them to a common width is most of the work.
        "Det.limit_type": "max",
        "Det.limit_side_len": 960,
        "Rec.rec_batch_num": 1,
        "Rec.rec_img_shape": [3, 48, 80],
    }


def _warm_up_page() -> Image.Image:
    page = Image.new("RGB", (320, 240), "white")
    ImageDraw.Draw(page).text((20, 90), "Total due 12.50", fill="black", font=ImageFont.load_default(28))
    return page


def opened(data: bytes) -> Image.Image:
    """The page as RGB, or `forebay.Permanent`. The header alone decides whether pixels are decoded."""
    with _header(data) as image:
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise forebay.Permanent(
                f"page refused before decoding: it declares {width:,} x {height:,} pixels,"
                f" {width * height:,} in all; at most {MAX_PIXELS:,} are read"
            )
        if max(width, height) > MAX_RATIO * min(width, height):
            raise forebay.Permanent(f"page refused before decoding: {width:,} x {height:,} is not a page")
        try:
            return _as_rgb(ImageOps.exif_transpose(image))
        except MemoryError:  # says something about this machine, nothing about the page
            raise
        except Exception as error:
            raise forebay.Permanent(f"page is cut off or damaged: {error}") from None


def _header(data: bytes) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return Image.open(io.BytesIO(data), formats=("PNG", "JPEG"))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise forebay.Permanent(
            f"page refused before decoding: it declares more than {Image.MAX_IMAGE_PIXELS:,} pixels;"
            f" at most {MAX_PIXELS:,} are read"
        ) from None
    except Exception:  # Pillow raises a dozen kinds on hostile bytes, all meaning the same
        raise forebay.Permanent("page is not a readable PNG or JPEG") from None


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits of grey: a plain conversion would clip all of it to white
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    if "A" in image.mode or "transparency" in image.info:  # text on nothing is text on white paper
        layer = image.convert("RGBA")
        image = Image.new("RGBA", layer.size, "white")
        image.alpha_composite(layer)
    return image.convert("RGB")


def _lines(read: Any) -> list[Line]:
    if read.txts is None:  # a blank page
        return []
    return [
        Line(text, round(float(confidence), 4), _upright(corners))
        for text, confidence, corners in zip(read.txts, read.scores, read.boxes, strict=True)
    ]


def _upright(corners: Any) -> list[int]:
    xs, ys = [float(corner[0]) for corner in corners], [float(corner[1]) for corner in corners]
    return [round(min(xs)), round(min(ys)), round(max(xs)), round(max(ys))]


# -- from lines to fields -------------------------------------------------------------------------

# The value needs a digit: "quote the invoice number with your payment" has no number in it.
_NUMBER = re.compile(
    r"invoice\s*(?:number|num|nr|no|#)\s*[.:#]*\s*((?=[A-Z/-]*\d)[A-Z0-9][A-Z0-9/-]{2,})", re.IGNORECASE
)
# A reader may see a space after a separator ("70, 128.55"), and some write one between thousands.
_FIGURE = r"(?P<amount>\d+(?:[.,] ?\d+| \d{3}(?!\d))*)"
_AMOUNT = rf"(?P<symbol>[€$£])?\s*(?P<code>EUR|USD|GBP)?\s*{_FIGURE}\s*(?P<after>EUR|USD|GBP)?"
_DUE = re.compile(r"(?:total|amount|balance)\s*due\s*:?\s*" + _AMOUNT, re.IGNORECASE)
_TOTAL = re.compile(r"(?<!sub-)\btotal\s*:?\s*" + _AMOUNT, re.IGNORECASE)
_CODES = {"€": "EUR", "$": "USD", "£": "GBP"}


def parsed(lines: list[Line]) -> Invoice:
    rows = _rows(lines)
    invoice = Invoice(lines=lines)
    number = next((match for row in rows if (match := _NUMBER.search(row))), None)
    if number:
        invoice.invoice_number = number[1]
    # "Total due" beats a plain "Total", which may be the sum before tax; the last one on the page wins.
    for pattern in (_DUE, _TOTAL):
        matches = [match for row in rows if (match := pattern.search(row))]
        if matches:
            invoice.total = _plain_amount(matches[-1]["amount"])
            invoice.currency = _currency(matches[-1])
            break
    return invoice


def _rows(lines: Sequence[Line]) -> list[str]:
    """The page as rows of text: a label and the value to its right were found as two boxes."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: line.box[1] + line.box[3]):
        middle = (line.box[1] + line.box[3]) / 2
        if rows and rows[-1][0].box[1] <= middle <= rows[-1][0].box[3]:
            rows[-1].append(line)
        else:
            rows.append([line])
    return [" ".join(line.text for line in sorted(row, key=lambda line: line.box[0])) for row in rows]


def _plain_amount(written: str) -> str:
    """Turns "1,234.50" and "1.234,50" into "1234.50": a mark before the last two digits is decimal."""
    cents = re.search(r"[.,] ?(\d\d)$", written)
    whole = written[: cents.start()] if cents else written
    return re.sub(r"\D", "", whole) + "." + (cents[1] if cents else "00")


def _currency(match: re.Match[str]) -> str | None:
    code = match["code"] or match["after"]
    return code.upper() if code else _CODES.get(match["symbol"] or "")
