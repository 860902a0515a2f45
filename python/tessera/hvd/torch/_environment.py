"""Settings in Horovod's environment variables, as `tessera launch` and horovodrun set them."""
import fcntl
import os
import socket
import struct

from tessera import _c

_GET_ADDRESS = 0x8915  # SIOCGIFADDR


def _number(name, minimum):
    """The variable's value; None: not set."""
    text = os.environ.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = minimum - 1
    if not minimum <= value < float("inf"):
        raise ValueError("tessera: {}={}: expected a number from {}".format(name, text, minimum))
    return value


def address_of(interfaces):
    """The IPv4 address of the first of these network interfaces ("eth0,eth1") that has one."""
    for name in interfaces.split(","):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                answer = fcntl.ioctl(probe.fileno(), _GET_ADDRESS, struct.pack("256s", name[:15].encode()))
            except OSError:
                continue
            return socket.inet_ntoa(answer[20:24])
    raise ValueError("tessera: none of the network interfaces {} has an IPv4 address; there are {}".format(
        interfaces, ", ".join(name for _, name in socket.if_nameindex())))


def options():
    """Options of the world: how long ranks wait, and which interface they use."""
    timeout, start = _number("HOROVOD_GLOO_TIMEOUT_SECONDS", 0), _number("HOROVOD_START_TIMEOUT", 0)
    made = _c.options(timeout_ms=int((timeout or 0) * 1000), connect_timeout_ms=int((start or 0) * 1000))
    if os.environ.get("HOROVOD_GLOO_IFACE"):
        made.address = address_of(os.environ["HOROVOD_GLOO_IFACE"]).encode()
    return made


def fusion_bytes():
    """Bytes of reductions that travel as one; 0: each alone."""
    value = _number("HOROVOD_FUSION_THRESHOLD", 0)
    return 16 << 20 if value is None else int(value)


def timeline(rank):
    """The file for this rank's trace; None: no trace."""
    path = os.environ.get("HOROVOD_TIMELINE")
    return path and (path if rank == 0 else "{}.{}".format(path, rank))
