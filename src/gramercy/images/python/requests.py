"""What a request may hold, and the error that says what is wrong with one."""

Request = dict[str, object]


class RequestError(Exception):
    """A request that cannot be answered: the type, the message and what the caller may have meant."""

    def __init__(self, kind: str, message: str, suggestions: list[str] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.suggestions = suggestions or []

    def record(self) -> dict[str, object]:
        """Return the error as it stands in a reply."""
        return {"type": self.kind, "message": self.message, "suggestions": self.suggestions}


def text(request: Request, key: str) -> str:
    """Return a field that must be a string."""
    value = request.get(key)
    if type(value) is not str:
        raise RequestError("INVALID-REQUEST", f'"{key}" must be a string, not {type(value).__name__}.')
    return value


def optional_text(request: Request, key: str) -> str | None:
    """Return a field that may be a string or absent."""
    return None if request.get(key) is None else text(request, key)


def flag(request: Request, key: str) -> bool:
    """Return a field that may be true, false or absent."""
    value = request.get(key)
    if value is None or type(value) is bool:
        return bool(value)
    raise RequestError("INVALID-REQUEST", f'"{key}" must be a boolean, not {type(value).__name__}.')


def count(request: Request, key: str, default: int, most: int) -> int:
    """Return a field that may be a count or absent, never more than `most`."""
    value = request.get(key)
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise RequestError("INVALID-REQUEST", f'"{key}" must be a whole number of 0 or more.')
    return min(value, most)
