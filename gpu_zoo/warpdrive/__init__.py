"""WarpDrive's environments; see one module each."""
