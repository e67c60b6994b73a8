"""Error responses to clients."""

_TYPES = {
    400: "invalid_request", 401: "unauthorized", 403: "forbidden", 404: "not_found",
    405: "method_not_allowed", 408: "request_timeout", 413: "too_large",
    415: "unsupported_media_type", 429: "overloaded", 500: "internal_error",
    503: "unavailable", 504: "deadline_exceeded",
}  # fmt: skip


class Refusal(Exception):
    """A refused request: its status, a message for the client, and when to retry."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = {}
        if retry_after is not None:
            self.headers["retry-after"] = str(max(1, round(retry_after)))
        if status == 401:
            self.headers["www-authenticate"] = "Bearer"

    @property
    def type(self) -> str:
        """The kind of refusal, for client programs."""
        return _TYPES.get(self.status, "error")
