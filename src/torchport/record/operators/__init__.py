"""Every operator of a training run, in one HDF5 file for each step and process: the folder of a recording's version 3.

`layout` says what such a file holds, `reading` reads it (h5py and numpy, no torch), `writing` writes it. In the user's
process `part` takes part in a recorded run: `hook` lets the C++ library of `csrc/record` note what is called, `mode`
does the same in Python where that library cannot be used, `scopes` tells either which module is running.
Modules of this package import numpy; nothing imports them before something is recorded or read.
"""
