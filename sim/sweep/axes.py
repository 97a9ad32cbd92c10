"""What is swept: the flags of `python -m sim`, each taking several values, and the product of them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from sim.config import OUTPUTS, SimConfig
from sim.policies import default_cap, default_rule
from traces.errors import InputError

BASELINE = "baseline"
"""Not swept: what the others are held against. Nor are settings that are lists themselves, such as the SLOs."""

Backend = Literal["loky", "dask", "ray"]
Options = TypeVar("Options")


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Where the runs go and who computes them."""

    output_dir: Path = Path("sweep")
    """Directory for runs.parquet and runs.jsonl. What is there already does not run again."""

    backend: Backend = "loky"
    """loky: processes on this machine; dask or ray: a cluster (pip install 'draftlab[sweep]')."""

    address: str | None = None
    """Scheduler of a running cluster: tcp://host:8786 (dask), auto or ray://host:10001 (ray). Default: a local one."""

    jobs: int | None = None
    """Runs at a time. Default: the cores of this machine, or all workers of a cluster."""

    retry_failed: bool = False
    """Run again what failed before."""


@cache
def flags() -> type[SweepOptions]:
    """A dataclass of every setting of SimConfig as a tuple of values, beside the sweep's own options."""

    def several(name: str, kind: Any, default: Any) -> tuple[Any, Any]:
        if name == BASELINE or is_list(kind):
            return kind, default
        return tuple[_required(kind), ...], () if default is None else (default,)  # type: ignore[misc]

    return derived_flags("SweepFlags", SweepOptions, OUTPUTS, several)


def derived_flags(
    name: str, options: type[Options], leave_out: Collection[str], change: Callable[[str, Any, Any], tuple[Any, Any]]
) -> type[Options]:
    """A dataclass for the command line: `options`, and the settings of SimConfig with their help.

    change  (name, type, default) of a setting -> the type and default that its flag has
    """
    import tyro

    kinds, help_of, made = get_type_hints(SimConfig), field_docs(SimConfig), []
    for each in fields(SimConfig):
        if each.name not in leave_out:
            kind, default = change(each.name, kinds[each.name], each.default)
            hint = "" if default in (None, ()) else None  # the help says what stands for nothing
            about = tyro.conf.arg(help=help_of[each.name], help_behavior_hint=hint)
            made.append((each.name, Annotated[kind, about], field(default=default)))
    return make_dataclass(name, made, bases=(options,), frozen=True, kw_only=True)


def values_of(parsed: SweepOptions) -> dict[str, tuple[Any, ...]]:
    """The values of every setting that has any, from parsed flags; a flag without a value is True."""
    kinds, values = get_type_hints(SimConfig), {}
    for each in fields(SimConfig):
        if each.name in OUTPUTS or each.name == BASELINE:
            continue
        value = getattr(parsed, each.name)
        if is_list(kinds[each.name]):
            values[each.name] = (value,)
        elif value != () or isinstance(each.default, bool):
            values[each.name] = value or (True,)
    return values


def expand(axes: Mapping[str, Any], baseline: str | None = None) -> list[SimConfig]:
    """The product of the values as settings, in the order given, seeds innermost; each once, caps and rules resolved.

    axes: setting -> its values, or one value, e.g. {"trace": "sharegpt", "policy": ["none", "dsde"], "seed": range(3)}.
    With a `baseline` that policy, with its own cap and acceptance rule, runs under every combination of the others.
    Raises InputError for a setting or policy that does not exist.
    """
    unknown = set(axes) - {each.name for each in fields(SimConfig)}
    if unknown:
        raise InputError(f"no setting is called {', '.join(sorted(unknown))}")
    kinds = get_type_hints(SimConfig)
    axes = {name: _values(values, kinds[name]) for name, values in axes.items()}
    seeds = axes.get("seed", (SimConfig.seed,))
    names = [name for name in axes if name != "seed"]
    configs: list[SimConfig] = []
    for values in product(*(axes[name] for name in names)):
        here = [SimConfig(**dict(zip(names, values, strict=True)))]
        if baseline is not None:
            here.insert(0, replace(here[0], policy=baseline, cap=None, acceptance_rule=None))
        configs += [replace(each, seed=seed) for each in here for seed in seeds]
    return list(dict.fromkeys(map(resolved, configs)))


def resolved(config: SimConfig) -> SimConfig:
    """The same settings with cap and acceptance rule named, and without what does not decide the figures."""
    plain: dict[str, Any] = {each.name: each.default for each in fields(SimConfig) if each.name in OUTPUTS}
    return replace(
        config,
        cap=config.cap or default_cap(config.policy),
        acceptance_rule=config.acceptance_rule or default_rule(config.policy),
        baseline=None,
        **plain,
    )


def field_docs(config: type) -> dict[str, str]:
    """The docstring below each field of a dataclass and its bases, by name."""
    docs: dict[str, str] = {}
    for each in reversed(config.__mro__[:-1]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        body = definition.body if isinstance(definition, ast.ClassDef) else []
        for before, here in pairwise(body):
            if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(here, ast.Expr):
                docs[before.target.id] = " ".join(str(ast.literal_eval(here.value)).split())
    return docs


def _values(values: Any, kind: Any) -> Sequence[Any]:
    """One value as a list of one; a setting that is a list itself is one value if it holds no further lists."""
    if not isinstance(values, list | tuple | range):
        return [values]
    if is_list(kind) and not any(isinstance(value, list | tuple) for value in values):
        return [tuple(values)]
    return [tuple(value) if isinstance(value, list) else value for value in values]


def is_list(kind: Any) -> bool:
    """Whether a setting of this type takes several values at once."""
    return get_origin(_required(kind)) is tuple


def _required(kind: Any) -> Any:
    """`int | None` -> int."""
    parts = [part for part in get_args(kind) if part is not NoneType]
    return parts[0] if NoneType in get_args(kind) and len(parts) == 1 else kind
