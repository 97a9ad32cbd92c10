"""A name on the command line to a class or function: one registry for policies, caps, routers and trace formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from traces.errors import InputError

T = TypeVar("T")


class Registry(Generic[T]):
    """Entries by name, in order of registration. `kind` is what the error message calls an entry."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that files an entry under `name`. Raises ValueError if the name is taken."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise InputError(f"unknown {self.kind} {name!r}; known: {', '.join(self._entries)}")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)
