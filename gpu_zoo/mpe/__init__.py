"""The multi-agent particle environments, as in the package mpe2."""
