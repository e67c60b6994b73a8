"""Prometheus metrics: requests, waiting and running texts, times, tokens."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_PREFIX = "transformer_jax"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The metrics of one server, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._make(
            Counter, "requests", "answered requests", ["endpoint", "status"]
        )
        self._seconds = self._make(
            Histogram, "request_seconds", "seconds until the response began", ["endpoint"],
            buckets=_SECONDS,
        )  # fmt: skip
        self.first_token = self._make(
            Histogram, "first_token_seconds", "seconds until the first part of a streamed text",
            buckets=_SECONDS,
        )  # fmt: skip
        self._texts = self._make(Counter, "texts", "finished texts")
        self._tokens = self._make(Counter, "tokens", "tokens of best hypotheses")
        self.waiting = self._make(Gauge, "waiting_texts", "texts waiting for a row")
        self.running = self._make(Gauge, "running_texts", "texts being searched")
        self.ready = self._make(Gauge, "ready", "1 once all programs are compiled")
        self._reloads = self._make(Counter, "reloads", "reloads of the checkpoint", ["outcome"])

    def _make(self, kind: Any, name: str, what: str, labels: Any = (), **options: Any) -> Any:
        return kind(f"{_PREFIX}_{name}", what, labels, registry=self.registry, **options)

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(endpoint, str(status)).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def searched(self, tokens: int) -> None:
        """Count a text."""
        self._texts.inc()
        self._tokens.inc(tokens)

    def reloaded(self, outcome: str) -> None:
        """Count a reload: "done", "failed"."""
        self._reloads.labels(outcome).inc()

    def text(self) -> bytes:
        """Return all metrics in Prometheus's format."""
        return generate_latest(self.registry)
