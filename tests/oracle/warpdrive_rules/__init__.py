"""WarpDrive's environments as plain Python, one module each with a class Rules."""
