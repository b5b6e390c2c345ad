"""The objects a person may look into, by number.

The table is bounded: the oldest objects go first.
"""

from .printing import is_trivial

_KEPT = 1000


class Table:
    """Objects by number; an object met again keeps its number."""

    def __init__(self) -> None:
        self._objects: dict[int, object] = {}
        self._numbers: dict[int, int] = {}
        self._last = 0

    def number(self, thing: object) -> int | None:
        """Return the object's number, a new one when needed; None when there is nothing to look into."""
        if is_trivial(thing):
            return None
        known = self._numbers.get(id(thing))
        if known is not None:
            return known
        self._last += 1
        self._objects[self._last] = thing
        self._numbers[id(thing)] = self._last
        if len(self._objects) > _KEPT:
            oldest = next(iter(self._objects))
            del self._numbers[id(self._objects.pop(oldest))]
        return self._last

    def find(self, number: object) -> object:
        """Return the object, or raise KeyError with what to do."""
        if type(number) is not int or number not in self._objects:
            hint = f"the last {_KEPT} are kept; evaluate the expression again"
            raise KeyError(f"There is no object {str(number)[:40]}: {hint}.")
        return self._objects[number]
