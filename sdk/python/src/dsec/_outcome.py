"""What became of one item of many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from .errors import DSecError

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """One item's value, or the error that it met; one item's failure spoils no other.

    >>> Outcome(0, "s01", value=7).unwrap()
    7
    """

    #: Place of the item in the request.
    index: int
    #: Id of its session; empty when none was made.
    session_id: str
    value: T | None = None
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        """Whether it went well."""
        return self.error is None

    @property
    def infrastructure(self) -> bool:
        """Whether the platform failed: a trainer masks such an item."""
        return isinstance(self.error, DSecError) and self.error.error_class == "infrastructure"

    def unwrap(self) -> T:
        """Gives the value, or raises the error."""
        if self.error is not None:
            raise self.error
        return cast(T, self.value)
