"""Optimizers, schedules, and options for the loss-spike guard."""
