"""Limits of a server, and access to it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Limits and access. Times are in seconds, lengths of text in characters."""

    name: str = "model"  # of the model, for clients
    key: str | None = None  # that clients must send; None: no key
    allow_reload: bool = False  # by POST /reload
    # Web pages that may read answers, by origin; "*": all. A page of the server's own may anyway.
    allow_origins: tuple[str, ...] = ("*",)
    rows: int = 16  # texts searched at a time per process or device
    queue: int = 256  # most texts that may wait
    timeout: float = 60.0  # until a text must be finished
    patience: float = 10.0  # for the bytes of a request
    max_body: int = 1 << 20  # bytes of a request
    max_characters: int = 5000  # of a text
    max_texts: int = 64  # in a request
    max_batch: int = 10_000  # in a batch request, which is answered as it goes
    max_prompt: int = 1024  # pieces of a prompt
    max_tokens: int = 512  # written after a prompt
