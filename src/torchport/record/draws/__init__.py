"""One random stream for both runs: what a script draws, on the host or on the device, is the same numbers.

The kernels of torch's random operators are replaced in the dispatcher, for the CPU and for the accelerator, by
functions that draw on the host from a counter-based generator (Philox) and copy to where the tensor is. That is
below autograd, autocast, vmap and torch.compile, and above the device: the same code runs in the reference and in
the port, on the virtual NPU and on hardware, and no Python name that a script or a compiler sees is replaced.

`streams` says which key the next draw has, `numbers` makes numbers of a key, `kernels` replaces kernels, `operators`
and `layers` are what they are replaced by, `generators` follows seeds and saved states, `draws` puts them together.

What the device draws by itself is then not seen in the run; `own` measures it beside each first draw (`trials` has how
for each operator, `laws` what to expect).
"""

from __future__ import annotations

from torchport.record.draws.draws import Draws

__all__ = ["Draws"]
