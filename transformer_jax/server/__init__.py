"""An HTTP server for a trained model, with continuous batching of requests."""
