"""What a server allows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Limits, and who may come. Times are seconds; lengths of text are characters."""

    name: str = "model"  # of the model, for clients
    key: str | None = None  # what clients must know; None: nothing
    allow_reload: bool = False  # by POST /reload
    rows: int = 16  # texts searched at a time on a device
    queue: int = 256  # texts that wait at most
    timeout: float = 60.0  # until a text must be finished
    patience: float = 10.0  # for the bytes of a request
    max_body: int = 1 << 20  # bytes of a request
    max_characters: int = 5000  # of a text
    max_texts: int = 64  # in a request
    max_batch: int = 10_000  # in a request of a batch, which is answered as it goes
    max_prompt: int = 1024  # pieces of a prompt
    max_tokens: int = 512  # written behind a prompt
