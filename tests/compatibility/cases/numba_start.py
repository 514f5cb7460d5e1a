"""Starts Numba also where NumPy is newer than it: names that NumPy has dropped, and that Numba only mentions, are put
back as functions that refuse. On a machine with versions that fit, this does nothing."""

import importlib
import re
import sys

import numpy


def start():
    """Imports numba and numba.cuda."""
    for _ in range(20):
        try:
            importlib.import_module("numba")
            # This one is loaded with the first kernel otherwise.
            importlib.import_module("numba.cuda.cudaimpl")
            return importlib.import_module("numba.cuda")
        except AttributeError as error:
            missing = re.search(r"module 'numpy(?:\.\w+)*' has no attribute '(\w+)'", str(error))
            if not missing:
                raise

            def refuse(*_, name=missing[1], **__):
                raise NotImplementedError(f"numpy.{name} is gone")

            setattr(numpy, missing[1], refuse)
            for name in [name for name in sys.modules if name.split(".")[0] == "numba"]:
                del sys.modules[name]
    raise ImportError("numba and numpy do not fit")
