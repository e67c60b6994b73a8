"""What a client is told when its request is not answered."""

_TYPES = {
    400: "invalid_request", 401: "unauthorized", 403: "forbidden", 404: "not_found",
    405: "method_not_allowed", 408: "request_timeout", 413: "too_large",
    415: "unsupported_media_type", 429: "overloaded", 500: "internal_error",
    503: "unavailable", 504: "deadline_exceeded",
}  # fmt: skip


class Refusal(Exception):
    """A request that is refused: its status, a sentence for the client, and when to come again."""

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
        """The kind of refusal, for programs."""
        return _TYPES.get(self.status, "error")
