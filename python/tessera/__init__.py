"""Distributed training of transformer models: the program `tessera`, its C++ libraries, and modules for Python
programs:
`tessera.torch` (a backend of torch.distributed), `tessera.hvd.torch` (Horovod's names), `tessera.numpy`.

>>> tessera.cmake_prefix_path   # the value for -DCMAKE_PREFIX_PATH, like torch.utils.cmake_prefix_path

Importing this package imports nothing else.
"""
import os

__version__ = "0.0.0"  # tools/wheel.py inserts the version from tessera/base/version.h
cmake_prefix_path = os.path.dirname(os.path.abspath(__file__))


def run():
    """Replaces this process by the program."""
    import sys
    program = os.path.join(cmake_prefix_path, "bin", "tessera")
    os.execv(program, [program] + sys.argv[1:])
