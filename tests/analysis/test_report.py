"""The page: whole in itself, the same for the same frame, from any sweep that there may be."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.page import Picture, inline, page, table
from analysis.report import report
from sim.config import SimConfig
from sim.simulate import simulate
from tests.analysis.frames import TWELVE, frame
from traces.errors import InputError

VOID = {"meta", "link"}


class Checked(HTMLParser):
    """Raises where tags do not nest; collects ids, and addresses that lead out of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.outside: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        found = [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.outside += [value for value in found if not value.startswith(("#", "data:"))]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def twelve() -> str:
    return report(frame(TWELVE, ("1", "4"), (0, 1)), rerun=False)


def test_page_is_whole_and_nests(twelve):
    checked = Checked(twelve)
    assert len(checked.ids) == len(set(checked.ids))
    assert checked.outside == []
    assert "<script" not in twelve


def test_findings_come_before_figures_and_figures_before_provenance(twelve):
    assert re.findall("<h2>(.*?)</h2>", twelve) == ["Findings", "Figures", "Provenance"]


def test_every_figure_says_what_it_is(twelve):
    assert twelve.count("<svg") == twelve.count("<figcaption>") == twelve.count('role="img" aria-label="') == 8 + 1


def test_references_follow_their_ids(twelve):
    used = set(re.findall(r'(?:xlink:href="|url\()#([^")]+)', twelve))
    assert used
    assert used <= set(Checked(twelve).ids)


def test_same_frame_same_bytes(twelve):
    assert report(frame(TWELVE, ("1", "4"), (0, 1)), rerun=False) == twelve


def test_runs_that_failed_are_told():
    data = pd.concat([frame(), frame(("bass", "priced"), error="no <memory>")])
    text = report(data, rerun=False)
    assert "2 of 4 runs failed" in text
    assert "2 runs: no &lt;memory&gt;" in text


@pytest.mark.parametrize("data", [frame(error="no memory"), frame().iloc[:0]], ids=["failed", "empty"])
def test_nothing_ended_well(data):
    text = report(data)
    assert "No run ended well" in text
    assert "<svg" not in text


def test_a_frame_of_something_else():
    with pytest.raises(InputError, match=r"^report: the frame has no column policy, seed, request_rate"):
        report(pd.DataFrame({"a": [1]}))


def test_what_cannot_be_drawn_is_named():
    assert "regret: no run of oracle:goodput in the frame" in report(frame(), rerun=False)


def test_settings_have_figures_of_their_own_and_beyond_the_most_are_named(monkeypatch):
    monkeypatch.setattr("analysis.report.MOST_SETTINGS", 2)
    text = report(pd.concat([frame(("dsde",), profile=name) for name in "abc"]), rerun=False)
    assert re.findall("<h2>Figures: (.*?)</h2>", text) == ["profile a", "profile b"]
    assert "Not drawn: 1 more combinations of settings." in text
    assert "<li>profile c</li>" in text


def test_command_from_runs_on_disk(tmp_path, capsys):
    base = {"trace": "random", "num_prompts": 8, "request_rate": "20", "output_len": 16, "acceptance": "tiny-s"}
    for policy in ("none", "dsde"):
        simulate(SimConfig(policy=policy, **base)).save(tmp_path / policy)
    main(["report", str(tmp_path)])
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "2 runs" in capsys.readouterr().out
    assert "Draft lengths of dsde at request rate 20" in text  # from a run that was simulated again
    assert "acceptance: tiny-s" in text[text.index("Provenance") :]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report", "no/such"], "no/such: no such directory"),
        (["report", "."], "neither runs.parquet of a sweep nor results.json"),
        (["report", ".", "--output", "no/such/a.html"], "no/such is no directory"),
        (["reprot"], "unknown command 'reprot'; expected report"),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=re.escape(words)):
        main(arguments)


def test_help(capsys):
    main([])
    assert "report DIR" in capsys.readouterr().out


def test_ids_of_a_figure_get_its_prefix():
    svg = '<?xml version="1.0"?>\n<svg width="1pt" height="2pt" viewBox="0 0 1 2"><metadata>x</metadata><g id="a"/>'
    svg += '<use xlink:href="#a" clip-path="url(#a)"/></svg>\n'
    assert inline(Picture(svg, 'a "b"'), "f1") == (
        '<svg viewBox="0 0 1 2" role="img" aria-label="a &quot;b&quot;"><g id="f1-a"/>'
        '<use xlink:href="#f1-a" clip-path="url(#f1-a)"/></svg>'
    )


def test_text_is_escaped():
    assert "<b>" not in page("<b>", "<b>", [table(["<b>"], [["<b>"]])])
