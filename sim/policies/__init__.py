"""Length policies, one file each; caps and acceptance rules beside them. Shared with the live executor."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from sim.policies.acceptance_rules import AcceptanceRule, acceptance_rules
from sim.policies.base import LARGEST_OPTION, LengthPolicy, PolicyContext, policies
from sim.policies.caps import Cap, caps
from sim.policies.own import FAILURES, blame, label, own_policy
from traces.errors import InputError

__all__ = [
    "AcceptanceRule",
    "LengthPolicy",
    "PolicyContext",
    "acceptance_rules",
    "caps",
    "make_cap",
    "make_policy",
    "make_rule",
    "policies",
]

Made = TypeVar("Made")

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def make_policy(spec: str, context: PolicyContext) -> LengthPolicy:
    """A policy from `NAME`, `NAME:key=value,...` or a user's own `module:Class`. Raises InputError for a bad spec."""
    factory, options = _policy_class(spec)
    try:
        policy = call_with_options(factory, label(factory), options, context)
    except FAILURES as error:
        blame(factory, "__init__", error)
        raise
    longest = getattr(policy, "max_length", None)
    if not isinstance(longest, int | np.integer) or longest < 0:
        raise InputError(f"{label(factory)}: max_length is {longest!r}, expected the longest draft that it asks for")
    return policy


def make_cap(spec: str, context: PolicyContext) -> Cap:
    """A cap from `NAME` or `NAME:value`; the cap in `context` is not looked at. Raises InputError for a bad spec."""
    name, options = _parts(spec, "cap")
    leading = (context,) if inspect.isclass(caps[name]) else ()
    return call_with_options(caps[name], f"cap {name}", options, *leading)


def make_rule(spec: str) -> AcceptanceRule:
    """An acceptance rule, with a state of its own, from `NAME` or `NAME:key=value`. Raises InputError if it is bad."""
    name, options = _parts(spec, "acceptance rule")
    return call_with_options(acceptance_rules[name], f"acceptance rule {name}", options)


def default_cap(spec: str) -> str:
    """The cap that belongs to the policy of this spec, by name."""
    return _policy_class(spec)[0].default_cap


def default_rule(spec: str) -> str:
    """The acceptance rule that belongs to the policy of this spec, by name."""
    return _policy_class(spec)[0].acceptance_rule


def _policy_class(spec: str) -> tuple[type[LengthPolicy], str]:
    """The class that a spec names, and its options."""
    name, options = _parts(spec, "policy")
    class_name = options.partition(":")[0]
    if name in policies or not class_name.isidentifier():
        return policies[name], options
    return own_policy(name, class_name), _parts(options, "policy")[1]


def _parts(spec: str, kind: str) -> tuple[str, str]:
    """Name and options of a spec. Raises InputError where a colon or nothing at all stands for either."""
    name, colon, options = spec.partition(":")
    if not name:
        raise InputError(f"{kind} {spec!r}: expected a name")
    if colon and not options:
        raise InputError(f"{kind} {spec!r}: expected options after the colon, key=value,...")
    return name, options


def call_with_options(factory: Callable[..., Made], what: str, options: str, *leading: Any) -> Made:
    """Call `factory(*leading, **options)`, options converted by the parameters' annotations. Values may be JSON."""
    function = factory.__init__ if inspect.isclass(factory) else factory
    hints = get_type_hints(function)
    skipped = len(leading) + inspect.isclass(factory)
    names = list(inspect.signature(function).parameters)[skipped:]
    values: dict[str, Any] = {}
    for position, option in enumerate(filter(None, _split(options))):
        key, has_key, text = option.partition("=")
        if position == 0 and names and (not has_key or option[0] in "[{"):
            key, text = names[0], option
        if key not in names or not text:
            known = ", ".join(names) if names else "none"
            raise InputError(f"{what}: option {option!r} is not key=value with a known key; options: {known}")
        if key in values:
            raise InputError(f"{what}: option {key} is given twice")
        if key not in hints:
            raise InputError(
                f"{what}: option {key} has no annotation in __init__ that says what it is, as in k: int = 4"
            )
        values[key] = _convert(text, hints[key], f"{what}: option {key}")
    return factory(*leading, **values)


def _split(options: str) -> list[str]:
    """The parts between commas, but for those inside the brackets or the strings of a JSON value."""
    parts, depth, quoted = [""], 0, False
    for before, character in zip(" " + options, options, strict=False):
        if character == '"' and before != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (character in "[{") - (character in "]}")
        if character == "," and depth <= 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _convert(text: str, kind: Any, what: str) -> Any:
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise InputError(f"{what}: {text!r} is none of {', '.join(get_args(kind))}")
        return text
    if get_origin(kind) is types.UnionType:  # `float | None`: the option has no value unless given
        kind = get_args(kind)[0]
    try:
        value = kind(text)
    except ValueError:
        raise InputError(f"{what}: {text!r} is no {kind.__name__}") from None
    if isinstance(value, int) and abs(value) > LARGEST_OPTION:
        raise InputError(f"{what}: {text} is too large, expected at most {LARGEST_OPTION}")
    return value
