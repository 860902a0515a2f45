"""torch's Store as the store at which the library's ranks meet."""
from datetime import timedelta

import torch.distributed as dist

from tessera import _c


def functions_of(store):
    """(tessera_store_functions over `store`, the list with the last Python error). Keep it as long as the world."""
    def get(key, seconds):
        try:
            store.wait([key], timedelta(seconds=max(seconds, 0.001)))
        except (RuntimeError, ValueError) as error:
            # Different kinds and releases of stores raise different exceptions for a key that does not appear in time.
            if isinstance(error, dist.DistNetworkError) if hasattr(dist, "DistNetworkError") else False:
                raise
            raise TimeoutError(str(error))
        return bytes(store.get(key))

    def remove(key):
        try:
            store.delete_key(key)
        except (RuntimeError, NotImplementedError):
            pass  # this store cannot delete keys

    return _c.store_functions(store.set, get, store.add, remove)
