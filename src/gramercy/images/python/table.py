"""The objects a person may look into, by number.

The table is bounded in objects and in bytes: the oldest go first, and a big object is kept alive only as the
latest one of its kind. It never runs code of the user's.
"""

from weakref import ref

from .printing import is_trivial
from .weights import BUDGET, Weight

_KEPT = 1000
_AGAIN = "evaluate the expression again, or bind its value to a name"


class Entry:
    """An object that is held, or only followed while the program itself holds it."""

    __slots__ = ("_held", "_weak", "bytes", "is_big")

    def __init__(self, thing: object) -> None:
        weight = Weight(thing)
        self.bytes, self.is_big = weight.bytes, weight.is_big
        self._held: object = thing
        self._weak: ref[object] | None = None
        if self.is_big or not weight.is_known:
            try:
                self._weak = ref(thing)
            except TypeError:
                return
            self.let_go()

    def let_go(self) -> None:
        """Hold the object no longer."""
        self._held, self.bytes = None, 0

    def object(self) -> object:
        """Return the object, or None when it has gone; None itself is never in the table."""
        return self._held if self._weak is None or self._held is not None else self._weak()


class Table:
    """Objects by number; an object met again keeps its number."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._numbers: dict[int, int] = {}
        self._last = 0
        self._bytes = 0
        self._big: Entry | None = None

    def number(self, thing: object) -> int | None:
        """Return the object's number, a new one when needed; None when there is nothing to look into."""
        if is_trivial(thing):
            return None
        known = self._numbers.get(id(thing), 0)
        met = self._entries.get(known)
        # Another object may lie where one that has gone has lain.
        if met is not None and met.object() is thing:
            return known
        self._last += 1
        entry = Entry(thing)
        self._entries[self._last] = entry
        self._numbers[id(thing)] = self._last
        if entry.is_big:
            self._keep_only(entry)
        else:
            self._bytes += entry.bytes
        self._make_room()
        return self._last

    def _keep_only(self, entry: Entry) -> None:
        """Hold this big object instead of the one before it."""
        if self._big is not None:
            self._big.let_go()
        self._big = entry

    def _make_room(self) -> None:
        while len(self._entries) > _KEPT or (self._bytes > BUDGET and len(self._entries) > 1):
            number = next(iter(self._entries))
            entry = self._entries.pop(number)
            self._bytes -= 0 if entry.is_big else entry.bytes
        if len(self._numbers) > 2 * _KEPT:
            self._numbers = {
                place: number for place, number in self._numbers.items() if number in self._entries
            }

    def is_big(self, thing: object) -> bool:
        """Tell whether the object has a number and is too big to be kept."""
        entry = self._entries.get(self._numbers.get(id(thing), 0))
        return entry is not None and entry.is_big and entry.object() is thing

    def find(self, number: object) -> object:
        """Return the object, or raise KeyError with what to do."""
        if type(number) is not int or not 0 < number <= self._last:
            raise KeyError(f"There is no object {str(number)[:40]}: evaluate something to get a number.")
        entry = self._entries.get(number)
        if entry is None:
            raise KeyError(f"Object {number} is no longer kept, later ones took its room: {_AGAIN}.")
        thing = entry.object()
        if thing is None:
            reason = "it was too big to be kept" if entry.is_big else "nothing in the program holds it"
            raise KeyError(f"Object {number} has gone, {reason}: {_AGAIN}.")
        return thing
