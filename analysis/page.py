"""One self-contained HTML page: no script, no font, no picture from elsewhere; readable from 360 to 1920 px."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CSS = """
:root { color-scheme: light; --ink: #1a1a1a; --soft: #5f5f5f; --line: #dcdcdc; --accent: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 108rem; padding: 1.5rem clamp(1rem, 4vw, 4rem) 4rem; color: var(--ink);
  background: #fff; font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
h1 { font-size: clamp(1.4rem, 1rem + 2vw, 2.2rem); line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 0.75rem; border-bottom: 1px solid var(--line); padding-bottom: 0.3rem; }
h3 { font-size: 1.05rem; margin: 1.5rem 0 0.5rem; overflow-wrap: anywhere; }
p, li, dd, figcaption { overflow-wrap: anywhere; }
.lead, figcaption, .small { color: var(--soft); }
.findings { max-width: 60rem; padding-left: 1.2rem; }
.findings li { margin: 0.35rem 0; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1.5rem 2.5rem; }
figure { margin: 0; min-width: 0; }
figure svg { display: block; width: 100%; max-width: 44rem; height: auto; }
figcaption { font-size: 0.9rem; max-width: 44rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.9rem 0.25rem 0; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
dl { display: grid; grid-template-columns: minmax(8rem, max-content) 1fr; gap: 0.2rem 1.5rem; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; }
summary { cursor: pointer; color: var(--accent); padding: 0.4rem 0; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: 0.5rem; } }
@media print { figure, li { break-inside: avoid; } details > * { display: block; } }
"""


@dataclass(frozen=True)
class Picture:
    """An SVG file's text with what it shows; the caption is also what a screen reader says."""

    svg: str
    caption: str


def page(title: str, lead: str, body: Iterable[str]) -> str:
    """The whole document. `body` is HTML, the rest text."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{html.escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n'
        f'<h1>{html.escape(title)}</h1>\n<p class="lead">{html.escape(lead)}</p>\n'
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def heading(level: int, text: str) -> str:
    return f"<h{level}>{html.escape(text)}</h{level}>"


def paragraph(text: str, name: str = "") -> str:
    return f'<p class="{name}">{html.escape(text)}</p>' if name else f"<p>{html.escape(text)}</p>"


def bullets(sentences: Sequence[str], name: str = "findings") -> str:
    return f'<ul class="{name}">' + "".join(f"<li>{html.escape(each)}</li>" for each in sentences) + "</ul>"


def pictures(drawn: Sequence[Picture], first: int) -> str:
    """Figures side by side where there is room; `first` numbers them, for element ids that are unique in the page."""
    parts = [
        f"<figure>{inline(each, f'f{number}')}<figcaption>{html.escape(each.caption)}</figcaption></figure>"
        for number, each in enumerate(drawn, first)
    ]
    return '<div class="figures">' + "\n".join(parts) + "</div>"


def inline(picture: Picture, prefix: str) -> str:
    """The <svg> element alone, as wide as its place; its ids begin with `prefix`, for two figures may share some."""
    svg = picture.svg[picture.svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(xlink:href="|url\()#', rf"\g<1>#{prefix}-", svg)
    opening = svg[: svg.index(">")]
    sized = re.sub(r'\s(width|height)="[^"]*"', "", opening)
    return f'{sized} role="img" aria-label="{html.escape(picture.caption)}"{svg[len(opening) :]}'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """It scrolls by itself where it is wider than the page."""
    top = "".join(f'<th scope="col">{html.escape(each)}</th>' for each in head)
    lines = ("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def details(summary: str, content: str) -> str:
    return f"<details><summary>{html.escape(summary)}</summary>{content}</details>"


def terms(pairs: Iterable[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in pairs) + "</dl>"
