"""Errors that a user can mend. Programs print them as one line and exit with their code."""


class UserError(ValueError):
    """A mistake in the input: its message names the place, the value and the remedy."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))  # values may hold line ends
