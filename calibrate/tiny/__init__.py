"""The committed small pair: a target and two drafts, trained on a CPU (`python -m calibrate.tiny.train`).

It is real in what a simulator replays (two models, their costs, their agreement task by task), not in what it writes:
3 M parameters learn the form of a text, and neither to calculate nor to copy from their context ("exact" is 0 in
models/evaluation.json). Rows of training held at most 256 tokens; a longer context has a cost but no meaning.
"""

from pathlib import Path

MODELS = Path(__file__).parent / "models"
DRAFTS = ("draft-s", "draft-m")
