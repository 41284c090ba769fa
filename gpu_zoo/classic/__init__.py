"""Specs of the classic control environments, after Gymnasium's."""
