"""Kernel sources: the rules of every environment, one ``.cu`` file each, and what they share."""
