"""``python -m gpu_zoo``: the command line, as ``gpu-zoo``."""

import sys

from gpu_zoo.cli import main

sys.exit(main())
