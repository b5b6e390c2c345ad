"""The official client of TypeScript, to judge with."""

from tests.judging import judge, judges

__all__ = ["judge", "judges"]
