"""Renders invoice pages whose every line is known, so that what a model read can be scored exactly.

    python examples/pages.py --count 20 --out pages --seed 7

Page i depends on the seed and i alone: the first 20 of 500 pages are the same as 20 pages.
The font is the one inside Pillow, so a page looks the same on every machine with that Pillow.
"""

from __future__ import annotations

import argparse
import io
import json
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

WIDTH, HEIGHT = 827, 1169  # A4 at 100 dots per inch: a clean fax, and a PNG of some 30 KB
MARGIN = 60

VENDORS = (
    ("Alder & Finch Supplies", "14 Harbour Lane, Bristol BS1 4RW"),
    ("Northgate Tooling Ltd", "Unit 7, Foundry Road, Leeds LS9 8AG"),
    ("Blue Heron Catering", "220 Quayside, Cork T12 XF62"),
    ("Maple Ridge Printing", "3815 Cedar Avenue, Portland OR 97202"),
    ("Kestrel Freight GmbH", "Speicherweg 31, 20457 Hamburg"),
    ("Summit Office Interiors", "901 Larimer Street, Denver CO 80204"),
    ("Fontaine Water Systems", "12 rue des Lilas, 69003 Lyon"),
    ("Oakwell Laboratories", "5 Science Park, Cambridge CB4 0FE"),
    ("Redstone Electrical", "77 Canal Street, Manchester M1 3HU"),
    ("Juniper Garden Works", "48 Mill Road, Norwich NR3 1AB"),
)
CUSTOMERS = ("Harrow Museum Trust", "Delta Bay Hotels", "Whitfield School", "Orchard Clinic", "Lumen Studios")
ITEMS = (
    "Copper pipe 22 mm", "Printer paper A4", "Desk lamp, black", "Site inspection", "Catering for 40 guests",
    "Pump filter set", "Steel brackets", "Freight to Rotterdam", "Cable drum 50 m", "Poster printing A2",
    "Laboratory gloves", "Oak shelving", "Hourly consulting", "Garden soil, bulk", "Safety goggles",
    "Water testing kit", "Meeting chairs", "Packing tape", "Delivery surcharge", "Replacement valve",
)  # fmt: skip
CURRENCIES = ("EUR", "USD", "GBP")
NUMBER_LABELS = ("Invoice number", "Invoice no.", "Invoice #")
TOTAL_LABELS = ("Total due", "Amount due", "Balance due")
NOTES = (
    "Please pay within 30 days of the invoice date.",
    "Goods remain our property until paid in full.",
    "Quote the invoice number with your payment.",
)


@dataclass
class Known:
    """What is written on one page, in drawing order, and the fields a reader should find."""

    lines: list[str] = field(default_factory=list)
    invoice_number: str = ""
    total: str = ""  # "1234.50": no separators, so that it compares as text
    currency: str = ""


class Page(NamedTuple):
    png: bytes
    known: Known


class _Sheet:
    """An empty page that remembers what was drawn on it."""

    def __init__(self, rng: Random) -> None:
        self.image = Image.new("L", (WIDTH, HEIGHT), rng.randint(244, 255))
        self.draw = ImageDraw.Draw(self.image)
        self.ink = rng.randint(0, 60)
        self.known = Known()

    def text(self, x: int, y: int, text: str, size: int = 18, *, right: bool = False) -> None:
        font = ImageFont.load_default(size)
        self.draw.text((x, y), text, fill=self.ink, font=font, anchor="ra" if right else "la")
        self.known.lines.append(text)

    def rule(self, y: int) -> None:
        self.draw.line((MARGIN, y, WIDTH - MARGIN, y), fill=self.ink, width=1)

    def png(self) -> bytes:
        out = io.BytesIO()
        self.image.save(out, "PNG", optimize=True)
        return out.getvalue()


def render(seed: int, index: int) -> Page:
    """Page `index` of the stack `seed`."""
    rng = Random(f"{seed}/{index}")  # a string seed is hashed by random itself: stable across processes
    sheet = _Sheet(rng)
    sheet.known.currency = rng.choice(CURRENCIES)
    _head(sheet, rng)
    total = _table(sheet, rng)
    _foot(sheet, rng, total)
    return Page(sheet.png(), sheet.known)


def stack(count: int, seed: int = 7) -> Iterator[Page]:
    for index in range(count):
        yield render(seed, index)


def _head(sheet: _Sheet, rng: Random) -> None:
    vendor, address = rng.choice(VENDORS)
    issued = date(2024, 1, 1) + timedelta(days=rng.randrange(730))
    number = f"{rng.choice(('INV', 'RE', 'F'))}-{issued.year}-{rng.randrange(10_000, 99_999)}"
    sheet.known.invoice_number = number
    sheet.text(MARGIN, 56, vendor, 30)
    sheet.text(MARGIN, 100, address, 17)
    sheet.text(MARGIN, 170, "INVOICE", 34)
    label = rng.choice(NUMBER_LABELS)
    if rng.random() < 0.5:  # label and value apart, as in a form, or together, as in a letter
        sheet.text(MARGIN, 236, label)
        sheet.text(MARGIN + 200, 236, number)
    else:
        sheet.text(MARGIN, 236, f"{label}: {number}")
    sheet.text(MARGIN, 268, f"Date: {issued:%d %B %Y}")
    sheet.text(MARGIN, 300, f"Bill to: {rng.choice(CUSTOMERS)}")


def _table(sheet: _Sheet, rng: Random) -> int:
    """Draws the items; answers their sum in cents."""
    quantity_x, price_x, amount_x, y = 500, 630, WIDTH - MARGIN, 366
    sheet.text(MARGIN, y, "Description")
    for x, head in ((quantity_x, "Qty"), (price_x, "Price"), (amount_x, "Amount")):
        sheet.text(x, y, head, right=True)
    sheet.rule(y + 30)
    total = 0
    for item in rng.sample(ITEMS, rng.randint(4, 9)):
        y += 42
        quantity, cents = rng.randint(1, 48), rng.randint(150, 49_900)
        total += quantity * cents
        sheet.text(MARGIN, y, item)
        sheet.text(quantity_x, y, str(quantity), right=True)
        sheet.text(price_x, y, money(cents), right=True)
        sheet.text(amount_x, y, money(quantity * cents), right=True)
    sheet.rule(y + 36)
    return total


def _foot(sheet: _Sheet, rng: Random, net: int) -> None:
    tax_percent = rng.choice((7, 19, 20))
    tax = net * tax_percent // 100
    sheet.known.total = f"{(net + tax) / 100:.2f}"
    currency, label = sheet.known.currency, rng.choice(TOTAL_LABELS)
    rows = (("Subtotal", net, 18), (f"Tax {tax_percent}%", tax, 18), (label, net + tax, 22))
    for y, (name, cents, size) in zip((820, 852, 892), rows, strict=True):
        sheet.text(430, y, name, size)
        sheet.text(WIDTH - MARGIN, y, f"{currency} {money(cents)}", size, right=True)
    sheet.text(MARGIN, 1010, rng.choice(NOTES), 17)
    sheet.text(MARGIN, 1040, f"Account {rng.randrange(10**7, 10**8)}", 17)


def money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02d}"


def bomb(width: int = 60_000, height: int = 60_000) -> bytes:
    """A PNG of a few hundred bytes that declares billions of pixels.

    A decoder takes the memory the header asks for before it learns that the data ends early,
    which is why a reader has to look at the header and refuse.
    """

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits of grey
    one_row = zlib.compress(bytes(width + 1), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", one_row) + chunk(b"IEND", b"")


def label(png: bytes, keyword: str, text: str) -> bytes:
    """The same page with a tEXt chunk: it looks alike and says more."""
    info = PngImagePlugin.PngInfo()
    info.add_text(keyword, text)
    out = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.save(out, "PNG", pnginfo=info)
    return out.getvalue()


@dataclass(frozen=True)
class Score:
    """Exact shares: a line with one wrong character is not found, and no field is half right."""

    lines: int
    lines_exact: int
    fields: int
    fields_exact: int

    @property
    def line_share(self) -> float:
        return self.lines_exact / self.lines if self.lines else 1.0

    @property
    def field_share(self) -> float:
        return self.fields_exact / self.fields if self.fields else 1.0

    def __add__(self, other: Score) -> Score:
        return Score(
            self.lines + other.lines,
            self.lines_exact + other.lines_exact,
            self.fields + other.fields,
            self.fields_exact + other.fields_exact,
        )


NOTHING = Score(0, 0, 0, 0)  # where a sum of scores starts


def score(
    known: Known, read_lines: Sequence[str], invoice_number: str | None = None, total: str | None = None
) -> Score:
    """Compares one page. Runs of whitespace count as one space; nothing else is forgiven.

    Lines are counted, not merely looked up: "12" written twice has to be read twice.
    """
    wanted = Counter(_squeezed(line) for line in known.lines)
    found = wanted & Counter(_squeezed(line) for line in read_lines)
    fields_exact = (invoice_number == known.invoice_number) + (total == known.total)
    return Score(wanted.total(), found.total(), 2, fields_exact)


def _squeezed(line: str) -> str:
    return " ".join(line.split())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write invoice pages and what is known to be on them.")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("pages"))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--bomb", action="store_true", help="also write bomb.png, which must be refused")
    args = parser.parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "known.jsonl").open("w", encoding="utf-8") as known_file:
        for index, page in enumerate(stack(args.count, args.seed)):
            name = f"page-{index:04d}.png"
            (args.out / name).write_bytes(page.png)
            known_file.write(json.dumps({"file": name, **asdict(page.known)}) + "\n")
    if args.bomb:
        (args.out / "bomb.png").write_bytes(bomb())
    print(f"{args.count} pages and known.jsonl in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
