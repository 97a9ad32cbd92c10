"""Length policies, one file each; caps and acceptance rules beside them. Shared with the live executor."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from sim.policies.acceptance_rules import AcceptanceRule, acceptance_rules
from sim.policies.base import LengthPolicy, PolicyContext, policies
from sim.policies.caps import Cap, caps
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
    name, _, options = spec.partition(":")
    if name not in policies and options[:1].isupper():
        factory = _own_policy(name, options.partition(":")[0])
        options = options.partition(":")[2]
    else:
        factory = policies[name]
    return call_with_options(factory, f"policy {name}", options, context)


def make_cap(spec: str, context: PolicyContext) -> Cap:
    """A cap from `NAME` or `NAME:value`; the cap in `context` is not looked at. Raises InputError for a bad spec."""
    name, _, options = spec.partition(":")
    leading = (context,) if inspect.isclass(caps[name]) else ()
    return call_with_options(caps[name], f"cap {name}", options, *leading)


def make_rule(spec: str) -> AcceptanceRule:
    """An acceptance rule, with a state of its own, from `NAME` or `NAME:key=value`. Raises InputError if it is bad."""
    name, _, options = spec.partition(":")
    return call_with_options(acceptance_rules[name], f"acceptance rule {name}", options)


def default_cap(spec: str) -> str:
    """The cap that belongs to the policy of this spec, by name."""
    return _policy_class(spec).default_cap


def default_rule(spec: str) -> str:
    """The acceptance rule that belongs to the policy of this spec, by name."""
    return _policy_class(spec).acceptance_rule


def _policy_class(spec: str) -> type[LengthPolicy]:
    name, _, options = spec.partition(":")
    own = name not in policies and options[:1].isupper()
    return _own_policy(name, options.partition(":")[0]) if own else policies[name]


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
        return kind(text)
    except ValueError:
        raise InputError(f"{what}: {text!r} is no {kind.__name__}") from None


def _own_policy(module: str, class_name: str) -> type[LengthPolicy]:
    try:
        policy = getattr(importlib.import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"policy {module}:{class_name}: {error}; known policies: {', '.join(policies)}") from None
    except Exception as error:  # the user's module runs when it is imported: whatever it raises
        raise InputError(f"policy {module}:{class_name}: {module} fails: {type(error).__name__}: {error}") from error
    if not (inspect.isclass(policy) and issubclass(policy, LengthPolicy)):
        raise InputError(f"policy {module}:{class_name} is not a subclass of sim.policies.LengthPolicy")
    return policy
