"""Plots: who came, what was answered in time and how many were inside, second by second, as SVG or PNG."""

import struct
import zlib
from html import escape
from itertools import pairwise

from forebay.sim.scenario import Second

Stories = list[tuple[str, list[Second]]]
WIDTH, HEIGHT, ROW = 900, 170, 200
COLOURS = ((0x80, 0x80, 0x80), (0x2B, 0x7F, 0xD4), (0xC6, 0x28, 0x28))  # came, in time, inside
_NAMES = ("came", "in time", "inside")


def svg(title: str, stories: Stories) -> str:
    """Return a picture with a panel for each policy: a second and inside have scales of their own."""
    height = 40 + ROW * len(stories)
    size = f'width="{WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="22" font-size="16">{escape(title)}</text>',
    ]
    for number, (name, story) in enumerate(stories):
        top = 40 + ROW * number
        words = "  ".join(
            f"{word} (most {max(line):,})" for word, line in zip(_NAMES, _lines(story), strict=True)
        )
        parts.append(f'<text x="10" y="{top + 14}">{escape(name)}: {words}</text>')
        for line, colour in zip(_points(story, top), COLOURS, strict=True):
            told = " ".join(f"{x},{y}" for x, y in line)
            shade = f"rgb{colour}"
            parts.append(f'<polyline points="{told}" fill="none" stroke="{shade}" stroke-width="1.5"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _lines(story: list[Second]) -> list[list[int]]:
    return [[one.came for one in story], [one.good for one in story], [one.inside for one in story]]


def _points(story: list[Second], top: int) -> list[list[tuple[int, int]]]:
    """Return the three lines in pixels. What came and what was in time share a scale."""
    came, good, inside = _lines(story)
    rates = max(1, *came, *good)
    found: list[list[tuple[int, int]]] = []
    for line, most in ((came, rates), (good, rates), (inside, max(1, *inside))):
        step = max(1, len(line) - 1)
        found.append(
            [
                (10 + (WIDTH - 20) * at // step, top + HEIGHT - (HEIGHT - 24) * value // most)
                for at, value in enumerate(line)
            ]
        )
    return found


def png(stories: Stories) -> bytes:
    """Return the same lines as a PNG, without words."""
    height = 10 + ROW * len(stories)
    pixels = bytearray(b"\xff" * (WIDTH * height * 3))
    for number, (_, story) in enumerate(stories):
        for line, colour in zip(_points(story, 10 + ROW * number), COLOURS, strict=True):
            for start, end in pairwise(line):
                _draw(pixels, start, end, bytes(colour))
    raw = b"".join(b"\0" + pixels[row * WIDTH * 3 : (row + 1) * WIDTH * 3] for row in range(height))
    head = struct.pack(">IIBBBBB", WIDTH, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + _part(b"IHDR", head) + _part(b"IDAT", zlib.compress(raw)) + _part(b"IEND", b"")
    )


def _part(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _draw(pixels: bytearray, start: tuple[int, int], end: tuple[int, int], colour: bytes) -> None:
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    for step in range(steps + 1):
        x = start[0] + (end[0] - start[0]) * step // steps
        y = start[1] + (end[1] - start[1]) * step // steps
        at = (y * WIDTH + x) * 3
        pixels[at : at + 3] = colour
