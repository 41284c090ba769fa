"""Trainers that keep everything on the environment's device."""
