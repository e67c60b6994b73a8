"""Trained models for other engines."""
