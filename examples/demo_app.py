"""The application behind ./demo: ReadInvoice as it is in invoices.py, and one page that kills its process.

The poison exists only here. It stands for what really happens with native model code: a page that
makes a library write where it must not. No `except` sees that; the process is gone. The demo shows
that only this page is lost, and that the pages that shared its batch are read.

    from demo_app import poison_page
"""

import io
import os
import signal
from typing import Any

import invoices
import pages
from invoices import Invoice, InvoicePage
from modelkit import decoded
from PIL import Image

import forebay

app = forebay.App()

POISON_KEYWORD, POISON_TEXT = "forebay-demo", "crash"  # a tEXt chunk: the page looks like any other


@app.task(batch_max=4, batch_wait="20ms", timeout="2m", attempts_max=3, ttl="1h")
class ReadInvoice(invoices.ReadInvoice):
    """The lines of text on an invoice page, its number, and the total due."""

    def predict(self, items: list[InvoicePage]) -> list[Invoice | forebay.Failed]:
        for page in items:
            if _is_poison(page):
                # As a native library would die: no exception, no goodbye.
                os.kill(os.getpid(), signal.SIGSEGV)
        return super().predict(items)


def poison_page(seed: int = 7, index: int = 0) -> bytes:
    """A page that reads well everywhere else and kills the worker of this application."""
    return pages.label(pages.render(seed, index).png, POISON_KEYWORD, POISON_TEXT)


def _is_poison(page: InvoicePage) -> bool:
    try:
        with Image.open(io.BytesIO(decoded(page.image_b64, "image_b64")), formats=("PNG",)) as image:
            found: dict[Any, Any] = image.info  # Pillow puts text chunks that precede the pixels here
            return found.get(POISON_KEYWORD) == POISON_TEXT
    except Exception:  # whatever is wrong with it is for ReadInvoice to say
        return False
