"""Found by every Python below `torchport run` (PYTHONPATH leads here): patch torch there once it is imported.

A .pth file would need to be installed; this way works in every environment and is gone with the run. The
environment's own sitecustomize, which this one hides, is run as well.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _HERE]  # as if it had not been there
_spec = PathFinder.find_spec("sitecustomize")
if _spec is not None and _spec.loader is not None:
    sys.modules["sitecustomize"] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["sitecustomize"])

try:
    from torchport.startup import activate_with_torch
except ModuleNotFoundError as error:
    if error.name != "torchport":
        raise  # else: another Python, without torchport; the run is not about it
else:
    activate_with_torch()
