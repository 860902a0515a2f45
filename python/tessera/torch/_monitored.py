"""A barrier that names missing ranks. It uses the store, so that it also works in a group that has failed."""
import time
from datetime import timedelta

from ._errors import TimedOut


def monitored_barrier(store, rank, size, timeout, wait_all_ranks, name):
    """Every rank of the group calls it with an equal `name`. Rank 0 raises TimedOut naming the first rank that has not
    come within `timeout`, or all of them with `wait_all_ranks`; the other ranks raise it when rank 0 did."""
    if not isinstance(timeout, timedelta):
        timeout = timedelta(seconds=timeout)
    prefix, seconds = "tessera/monitored/{}/".format(name), timeout.total_seconds()
    end = time.monotonic() + seconds
    if rank != 0:
        store.set(prefix + str(rank), b"1")
        try:
            # Rank 0 may wait for others for as long as this rank does, and its answer must still arrive afterwards.
            store.wait([prefix + "all"], timeout + timedelta(seconds=1 + 0.1 * seconds))
            said = bytes(store.get(prefix + "all")).decode()
        except (RuntimeError, ValueError) as error:
            raise TimedOut("tessera: [Rank {}]: Rank 0 did not come to monitoredBarrier (or did not say so) within "
                           "{:.0f} ms".format(rank, seconds * 1000)) from error
        if said != "ok":
            raise TimedOut("tessera: [Rank {}]: {}".format(rank, said))
        return
    missing, pause = list(range(1, size)), 0.0005
    while missing:
        missing = [r for r in missing if not store.check([prefix + str(r)])]
        if missing and time.monotonic() > end:
            named = "Ranks {}".format(", ".join(map(str, missing))) if wait_all_ranks else "Rank {}".format(missing[0])
            said = "{} failed to pass monitoredBarrier in {:.0f} ms".format(named, seconds * 1000)
            store.set(prefix + "all", said)
            raise TimedOut("tessera: [Rank 0]: " + said)
        if missing:
            time.sleep(pause)
            pause = min(0.02, pause * 1.5)
    store.set(prefix + "all", b"ok")
