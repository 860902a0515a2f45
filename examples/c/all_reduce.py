"""Collectives from Python by ctypes alone: every rank adds its numbers to the others'.

  tessera launch --nproc_per_node 4 -- python3 all_reduce.py          (or torchrun, mpirun, srun)

The library: TESSERA_C_LIBRARY, or that of the installation which contains this file, or one on the loader's path.
"""
import ctypes
import os
import sys

installed = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../../lib/libtessera_c.so")
library = ctypes.CDLL(os.environ.get("TESSERA_C_LIBRARY") or
                      (installed if os.path.exists(installed) else "libtessera_c.so"))
library.tessera_last_error.restype = ctypes.c_char_p
FLOAT32, SUM = 7, 0


def call(name, *arguments):
    if getattr(library, name)(*arguments) != 0:
        sys.exit(f"{name}: {library.tessera_last_error().decode()}")


world, group, rank, size = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int32(), ctypes.c_int32()
call("tessera_init_environment", b"example", None, ctypes.byref(world))
call("tessera_world_group", world, ctypes.byref(group))
call("tessera_rank", world, ctypes.byref(rank))
call("tessera_size", world, ctypes.byref(size))

count = 1000
numbers = (ctypes.c_float * count)(*[rank.value + i for i in range(count)])
work = ctypes.c_uint64()
call("tessera_all_reduce", group, numbers, numbers, ctypes.c_int64(count), FLOAT32, SUM, None, ctypes.byref(work))
call("tessera_work_wait", work, ctypes.c_int64(-1), None)  # other work could be done before this
call("tessera_work_free", work)

expected = [sum(r + i for r in range(size.value)) for i in range(count)]
if list(numbers) != expected:
    sys.exit(f"rank {rank.value}: wrong sums")
call("tessera_barrier", group, None, None)
if rank.value == 0:
    print(f"{size.value} ranks added {count} numbers each: the last sum is {numbers[-1]:g}")
call("tessera_shutdown", world)
