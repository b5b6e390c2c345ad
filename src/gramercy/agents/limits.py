"""The usage of a run so far, against its limits: turns, calls, time, tokens and money.

The provider's own count is authoritative. Before a question is sent its size is estimated, and so is an
answer without a count.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from gramercy.errors import BudgetExceededError, LimitReachedError
from gramercy.providers.base import Usage

if TYPE_CHECKING:
    from gramercy.agents.base import Limits
    from gramercy.agents.prices import Price
    from gramercy.providers.base import Message

# English prose and code with the tokenizers of the large providers: 3 to 4 characters per token.
CHARACTERS_PER_TOKEN = 3.2
# Role, separators and the names of fields around each message.
CHARACTERS_AROUND = 16
NOTHING = Usage()


def dollars(amount: float) -> str:
    """Format an amount of money, with as many digits as a small one needs."""
    if amount >= 1:
        return f"${amount:.2f}"
    # An answer of a small model costs less than a hundredth of a cent.
    return f"${amount:.6f}" if 0 < amount < 0.001 else f"${amount:.4f}"  # noqa: PLR2004


def about_tokens(characters: int) -> int:
    """Estimate how many tokens a text has."""
    return int(characters / CHARACTERS_PER_TOKEN) + 1


def size_of(message: Message) -> int:
    """Return the number of characters that a message sends to a model."""
    called = sum(len(call.name) + len(call.arguments) + CHARACTERS_AROUND for call in message.calls)
    return len(message.text) + called + CHARACTERS_AROUND


class Meter:
    """Counts for one run and its nested agents, which share its limits.

    `before` is the cost of the conversation before this run.
    """

    def __init__(self, limits: Limits, before: float = 0.0) -> None:
        self.limits = limits
        self._before = before
        self.began = monotonic()
        self.usage = Usage()
        self.calls = 0
        # None after the first answer with an unknown price; known costs still count against the budget.
        self.cost: float | None = 0.0
        self._spent = 0.0
        # As the provider counts, or estimated if it does not.
        self._tokens = 0

    @property
    def elapsed(self) -> float:
        """The seconds since the run began."""
        return monotonic() - self.began

    @property
    def left(self) -> float | None:
        """The seconds that are left; None without a limit."""
        seconds = self.limits.seconds
        return None if seconds is None else max(0.0, seconds - self.elapsed)

    @property
    def calls_left(self) -> int | None:
        """How many calls may still run."""
        return None if self.limits.calls is None else max(0, self.limits.calls - self.calls)

    def spend(self, usage: Usage, about: Usage, price: Price | None) -> float | None:
        """Count an answer and return its cost; None if its price or its tokens are unknown.

        Without the provider's count, `about` counts against the limits.
        """
        counted = usage if usage.total else about
        self.usage += usage
        self._tokens += counted.total
        spent = 0.0 if price is None else price.of(counted)
        self._spent += spent
        is_known = price is not None and (usage.total > 0 or price.is_free)
        self.cost = self.cost + spent if is_known and self.cost is not None else None
        return spent if is_known else None

    def check(self, about: Usage = NOTHING, price: Price | None = None) -> None:
        """Raise LimitReachedError unless a question of about this many tokens may be asked."""
        limits = self.limits
        if limits.tokens is not None and self._tokens + about.total > limits.tokens:
            told = f"{self._tokens:,} are used"
            if self._tokens < limits.tokens:
                told += f", and the next question has about {about.total:,}"
            raise LimitReachedError(f"the limit of {limits.tokens:,} tokens is reached: {told}")
        next_cost = 0.0 if price is None else price.of(about)
        self._check_money("the budget of {}", limits.cost, self._spent, next_cost)
        self._check_money(
            "the budget of {} for the session", limits.session_cost, self._before + self._spent, next_cost
        )

    def _check_money(self, what: str, limit: float | None, spent: float, next_cost: float) -> None:
        if limit is None or spent + next_cost <= limit:
            return
        told = f"{dollars(spent)} are spent"
        if spent < limit:
            told += f", and the next question costs about {dollars(next_cost)}"
        raise BudgetExceededError(f"{what.format(dollars(limit))} is used up: {told}")

    def out_of_time(self) -> LimitReachedError:
        """Return the error for a run that takes too long."""
        return LimitReachedError(f"the limit of {self.limits.seconds:g} seconds is reached")

    def out_of_calls(self) -> LimitReachedError:
        """Return the error for a run that makes too many calls."""
        return LimitReachedError(f"the limit of {self.limits.calls} calls is reached")
