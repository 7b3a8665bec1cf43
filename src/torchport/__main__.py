"""`python -m torchport`: the same as the `torchport` console script."""

import sys

from torchport.cli import main

sys.exit(main())
