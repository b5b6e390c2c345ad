"""The tools of bad_tools.py as annotated functions, as every peer takes them. Needs pydantic."""

# ruff: noqa: ARG001 - the arguments are there to be validated, not used

from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, EmailStr, Field

from bench.bad_tools import DESCRIPTIONS, RAN


class Contact(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    email: EmailStr
    phone: Annotated[str, Field(pattern=r"^\+[0-9]{6,15}$")] = "+000000"


class Dish(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    quantity: Annotated[int, Field(ge=1)]


class Filters(BaseModel):
    model_config = ConfigDict(extra="forbid")
    author: str = ""
    since: date = date(2026, 1, 1)
    labels: list[str] = []
    archived: bool = False


async def get_forecast(
    city: Annotated[str, Field(min_length=1)],
    days: Annotated[int, Field(ge=1, le=14)],
    unit: Literal["celsius", "fahrenheit", "kelvin"] = "celsius",
    detailed: bool = False,  # noqa: FBT001, FBT002 - the argument of a tool
) -> str:
    return RAN


async def book_table(
    restaurant: str,
    guests: Annotated[int, Field(ge=1, le=20)],
    when: datetime,
    contact: Contact,
    dishes: Annotated[list[Dish], Field(max_length=3)] = [],  # noqa: B006 - never changed
) -> str:
    return RAN


async def transfer_money(
    from_account: Annotated[str, Field(pattern="^[A-Z]{2}[0-9]{8}$")],
    amount: Annotated[float, Field(gt=0, le=10000)],
    currency: Literal["EUR", "USD", "GBP"],
    memo: Annotated[str, Field(max_length=20)] = "",
) -> str:
    return RAN


async def search_notes(
    query: str, limit: Annotated[int, Field(ge=1, le=50)] = 10, filters: Filters | None = None
) -> str:
    return RAN


Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


async def set_alarm(
    label: str,
    repeat: Annotated[list[Weekday], Field(min_length=1)],
    volume: Annotated[float, Field(ge=0, le=1)] = 0.5,
) -> str:
    return RAN


FUNCTIONS: dict[str, Any] = {
    function.__name__: function
    for function in (get_forecast, book_table, transfer_money, search_notes, set_alarm)
}
for _name, _function in FUNCTIONS.items():
    _function.__doc__ = DESCRIPTIONS[_name]
