"""The committed small pair: a target and two drafts, trained on a CPU (`python -m calibrate.tiny.train`)."""

from pathlib import Path

MODELS = Path(__file__).parent / "models"
DRAFTS = ("draft-s", "draft-m")
