"""Stand-ins for CUDA-only Python packages: what a script imports as apex, flash_attn, xformers, pynvml or nvtx.

    from torchport import standins
    standins.install()          # `from apex import amp` works from here on
    ...
    standins.uninstall()        # leaves nothing behind in sys.meta_path and sys.modules

A stand-in is a module or a package in `packages/`, under the name and in the layout of the library it stands
for; the folder's listing is the list of stand-ins. It is found when the script imports the library, not
before. Packages that cannot be stood in for raise an ImportError with what to use instead, from
`knowledge/libraries.toml`.

Importing this package imports neither torch nor any stand-in.
"""

from torchport.standins.finder import install, names, uninstall

__all__ = ["install", "names", "uninstall"]
