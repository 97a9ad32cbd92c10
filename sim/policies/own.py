"""A policy of the user's own, `module:Class`: finding it, and one line that names the place for whatever it raises."""

from __future__ import annotations

import importlib
import inspect
import traceback
from pathlib import Path

from sim.policies.base import LengthPolicy, policies
from traces.errors import InputError

FAILURES = (Exception, SystemExit)
"""What a user's code may raise; Ctrl-C is no failure of it."""


def is_own(policy: type[LengthPolicy]) -> bool:
    """Whether it comes from a module of the user's."""
    return not policy.__module__.startswith("sim.policies.")


def label(policy: type[LengthPolicy]) -> str:
    """What messages call it: the name on the command line."""
    return f"policy {policy.__module__}:{policy.__qualname__}" if is_own(policy) else f"policy {policy.name}"


def own_policy(module: str, class_name: str) -> type[LengthPolicy]:
    """The class of that name. Raises InputError where there is none, or where it is no length policy."""
    what = f"policy {module}:{class_name}"
    try:
        policy = getattr(importlib.import_module(module), class_name, None)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise InputError(f"{what}: there is no module {module}; known policies: {', '.join(policies)}") from None
        raise InputError(f"{what}: {module} cannot be imported: {error}") from error
    except FAILURES as error:  # the user's module runs when it is imported: whatever it raises
        raise InputError(f"{what}: {module} cannot be imported: {type(error).__name__}: {error}") from error
    if policy is None:
        raise InputError(f"{what}: {module} has no class {class_name}")
    if not (inspect.isclass(policy) and issubclass(policy, LengthPolicy)):
        raise InputError(f"{what} is not a subclass of sim.policies.LengthPolicy")
    if "lengths" not in policy.hooks():
        raise InputError(f"{what} has no method lengths(self, batch), which says how many tokens each sequence drafts")
    return policy


def blame(policy: type[LengthPolicy], hook: str, error: BaseException) -> None:
    """Raise an InputError with the place in the user's file, if the policy is the user's.

    Not for an InputError, which is its own line, nor for an error in a policy of this package, which is ours.
    """
    if isinstance(error, InputError) or not is_own(policy):
        return
    frames = traceback.walk_tb(error.__traceback__)
    theirs = [(frame, line) for frame, line in frames if frame.f_globals.get("__name__") == policy.__module__]
    place = f" ({Path(theirs[-1][0].f_code.co_filename).name}:{theirs[-1][1]})" if theirs else ""
    words = " ".join(str(error).split())
    raise InputError(f"{label(policy)} fails in {hook}: {type(error).__name__}: {words}{place}") from error
