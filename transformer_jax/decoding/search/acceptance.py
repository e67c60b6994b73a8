"""Acceptance statistics of speculative decoding."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from transformer_jax.base.arrays import Int


@dataclass
class Acceptance:
    """Sums over the finished sentences of a search; see `speculative`."""

    passes: int = 0  # of the model
    tokens: int = 0  # of one hypothesis of each sentence
    judged: int = 0  # proposals verified: those after the first rejected one are not
    accepted: int = 0

    def add(self, tokens: Int[np.ndarray, "R"], drafts: Int[np.ndarray, "R 3"]) -> None:
        """Count sentences, given their numbers of tokens and their `SearchState.drafts`."""
        passes, judged, accepted = drafts.sum(0).tolist()
        self.passes, self.tokens = self.passes + passes, self.tokens + int(tokens.sum())
        self.judged, self.accepted = self.judged + judged, self.accepted + accepted

    @property
    def tokens_per_pass(self) -> float:
        """Mean number of tokens per pass: 1 without a draft."""
        return self.tokens / max(self.passes, 1)

    @property
    def rate(self) -> float:
        """The fraction of judged proposals that were accepted: Leviathan et al.'s alpha."""
        return self.accepted / max(self.judged, 1)

    def as_dict(self) -> dict[str, Any]:
        """Return both figures, and the number of passes they cover."""
        return {
            "passes": self.passes,
            "tokens_per_pass": self.tokens_per_pass,
            "acceptance_rate": self.rate,
        }

    def __str__(self) -> str:
        return (
            f"{self.tokens_per_pass:.2f} tokens per pass, "
            f"{100 * self.rate:.1f} % of {self.judged:,} judged proposals accepted"
        )
