"""What a paper says and what the simulator says to it, as a table in text and in Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analysis.intervals import Estimate

NOT_ASKED = "-"


@dataclass(frozen=True)
class Claim:
    """One published statement.

    what       what is measured
    published  the paper's figure, or its words
    ours       ours, with its interval over seeds
    rule       when the shape counts as the same
    holds      whether it is; None where there is nothing to hold it against
    reason     where it does not hold or cannot be asked: why, from the figures of the runs
    """

    what: str
    published: str
    ours: str
    rule: str
    holds: bool | None
    reason: str = ""

    @property
    def verdict(self) -> str:
        return NOT_ASKED if self.holds is None else "yes" if self.holds else "NO"


@dataclass(frozen=True)
class Reproduction:
    """The claims of a paper, how its set-up and ours differ, and further tables: title -> rows, first the header."""

    paper: str
    claims: Sequence[Claim]
    differs: Sequence[tuple[str, str, str]]
    tables: dict[str, list[list[str]]]

    def summary(self) -> str:
        asked = [claim for claim in self.claims if claim.holds is not None]
        return f"{sum(claim.holds is True for claim in asked)} of {len(asked)} shapes hold"

    def text(self) -> str:
        """The claims for a terminal, a few lines each."""
        blocks = []
        for claim in self.claims:
            lines = [
                claim.what,
                f"  published {claim.published}; ours {claim.ours}",
                f"  {claim.verdict}: {claim.rule}",
            ]
            blocks.append(
                "\n".join([*lines, *textwrap.wrap(claim.reason, 110, initial_indent="  ", subsequent_indent="  ")])
            )
        return "\n".join(blocks)

    def markdown(self) -> str:
        """The whole page."""
        rows = [["claim", "published", "ours", "shape holds"]]
        rows += [[claim.what, claim.published, claim.ours, f"{claim.verdict} ({claim.rule})"] for claim in self.claims]
        why = [f"- {claim.what}: {claim.reason}" for claim in self.claims if claim.reason]
        parts = [f"# {self.paper}", f"{self.summary()}; shapes are compared, not digits.", table(rows)]
        parts += ["## Where a shape does not hold, and why", "\n".join(why)] if why else []
        parts += ["## What differs in the set-up", table([["", "paper", "here"], *map(list, self.differs)])]
        for title, more in self.tables.items():
            parts += [f"## {title}", table(more)]
        return "\n\n".join(parts) + "\n"


def table(rows: Iterable[Sequence[str]]) -> str:
    """Markdown; the first row is the header. Columns are padded, so that it reads as text too."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    width = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ["| " + " | ".join(cell.ljust(n) for cell, n in zip(row, width, strict=True)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (n + 2) for n in width) + "|", *lines[1:]])


def shown(value: Estimate, form: str = ".2f", unit: str = "x") -> str:
    """1.04x [1.03, 1.05]."""
    interval = f" [{value.low:{form}}, {value.high:{form}}]" if value.certain else ""
    return f"{value.mean:{form}}{unit}{interval}"
