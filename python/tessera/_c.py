"""The C library, libtessera_c.so, loaded with ctypes only: its functions with their types, its errors as exceptions.

`lib` is loaded when it is first used: $TESSERA_C_LIBRARY, or libtessera_c.so in the package's folder `lib`, or what the
loader finds under that name. `call("all_reduce", ...)` calls a function and raises an exception if its status is an
error.
"""
import atexit
import ctypes
import ctypes.util
import glob
import os
import sys
import traceback

ABI = 1

OK, INVALID, PEER_LOST, TIMEOUT, MISMATCH, ABORTED, SHUT_DOWN, STORE, SYSTEM = range(9)
UINT8, INT8, INT16, INT32, INT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64, BOOL, COMPLEX64, COMPLEX128 = range(12)
SUM, PRODUCT, MIN, MAX, AVERAGE, BAND, BOR, BXOR = range(8)
ANY_SOURCE = -1

# w: a handle (64 bits), i: int32, l: int64, p: an address, s: text. Signatures that begin with "!" are those of
# functions that return a status.
_TYPES = {"w": ctypes.c_uint64, "i": ctypes.c_int32, "l": ctypes.c_int64, "p": ctypes.c_void_p, "s": ctypes.c_char_p}
FUNCTIONS = {
    "abi_version": "i:", "version": "s:", "status_name": "s:i", "last_error": "s:",
    "dtype_size": "l:i", "dtype_name": "s:i", "op_name": "s:i",
    "options_init": "!p", "init_environment": "!spp", "init_store": "!siiispp", "init_folder": "!siispp",
    "init_functions": "!piispp", "shutdown": "!w",
    "rank": "!wp", "size": "!wp", "local_rank": "!wp", "local_size": "!wp", "host_count": "!wp", "host_of": "!wip",
    "host_name": "!wiplp",
    "store_set": "!wspl", "store_get": "!wslplp", "store_add": "!wslp", "store_remove": "!ws",
    "world_group": "!wp", "group_create": "!wpisp", "group_split": "!wiisp", "group_find": "!wsp",
    "group_destroy": "!w", "group_abort": "!ws", "group_state": "!w", "group_rank": "!wp", "group_size": "!wp",
    "group_ranks": "!wpi", "group_name": "!wplp", "group_transport": "!wplp", "group_set_timeout": "!wl",
    "all_reduce": "!wppliipp", "reduce": "!wppliiipp", "broadcast": "!wpliipp", "all_gather": "!wpplipp",
    "all_gather_v": "!wpppipp", "gather": "!wppliipp", "scatter": "!wppliipp", "reduce_scatter": "!wppliipp",
    "reduce_scatter_v": "!wpppiipp", "all_to_all": "!wpplipp", "all_to_all_v": "!wppppipp", "barrier": "!wpp",
    "send": "!wpliiipp", "recv": "!wpliiippp", "batch_begin": "!w", "batch_end": "!wp",
    "work_wait": "!wlp", "work_test": "!wp", "work_status": "!w", "work_error": "!wplp", "work_source": "!wp",
    "work_free": "!w", "memory_allocate": "!lp", "memory_free": "!p", "view_dlpack": "!pip",
    "timeline_start": "!ws", "timeline_stop": "!w", "report": "!wplp",
}


class Options(ctypes.Structure):
    """tessera_options: the settings of a new world. Create it with `options()`."""
    _fields_ = [("size", ctypes.c_int64), ("timeout_ms", ctypes.c_int64), ("connect_timeout_ms", ctypes.c_int64),
                ("transport", ctypes.c_char_p), ("address", ctypes.c_char_p), ("host", ctypes.c_char_p),
                ("local_rank", ctypes.c_int32), ("local_size", ctypes.c_int32), ("join_store", ctypes.c_int32),
                ("reserved", ctypes.c_int32), ("secret", ctypes.c_char_p)]


class Call(ctypes.Structure):
    """tessera_call: an operation's optional settings; `timeout_ms` 0: the group's; a scale of 0 means 1."""
    _fields_ = [("size", ctypes.c_int64), ("timeout_ms", ctypes.c_int64), ("prescale", ctypes.c_double),
                ("postscale", ctypes.c_double), ("label", ctypes.c_char_p)]

    def __init__(self, timeout_ms=0, prescale=0.0, postscale=0.0, label=None):
        super().__init__(ctypes.sizeof(Call), timeout_ms, prescale, postscale, label)


_SET = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)
_GET = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p,
                        ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))
_ADD = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64,
                        ctypes.POINTER(ctypes.c_int64))
_REMOVE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p)


class StoreFunctions(ctypes.Structure):
    """tessera_store_functions; see `store_functions()`."""
    _fields_ = [("size", ctypes.c_int64), ("context", ctypes.c_void_p), ("set", _SET), ("get", _GET), ("add", _ADD),
                ("remove", _REMOVE)]


class View(ctypes.Structure):
    """tessera_view: address, number of elements, dtype of a dense tensor."""
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_int64), ("dtype", ctypes.c_int32),
                ("read_only", ctypes.c_int32)]


class TesseraError(RuntimeError):
    """An operation failed. The text comes from the library and names ranks and operations; `status` is the error
    code."""
    status = SYSTEM


class InvalidArgument(TesseraError, ValueError):
    status = INVALID


class PeerLost(TesseraError):
    status = PEER_LOST


class TimedOut(TesseraError, TimeoutError):
    status = TIMEOUT


class Mismatch(TesseraError):
    status = MISMATCH


class Aborted(TesseraError):
    status = ABORTED


class ShutDown(TesseraError):
    status = SHUT_DOWN


class StoreFailed(TesseraError):
    status = STORE


ERRORS = {c.status: c for c in (InvalidArgument, PeerLost, TimedOut, Mismatch, Aborted, ShutDown, StoreFailed,
                                TesseraError)}


def _candidates():
    """The paths where the library may be, the preferred one first."""
    chosen = os.environ.get("TESSERA_C_LIBRARY")
    if chosen:
        return [chosen]
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")
    return sorted(glob.glob(os.path.join(beside, "libtessera_c.so*")), key=len) + ["libtessera_c.so.1",
                                                                                   "libtessera_c.so"]


def _load():
    library, why = None, []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            break
        except OSError as error:
            why.append(str(error))
    if library is None:
        raise ImportError("tessera: libtessera_c.so is not found; TESSERA_C_LIBRARY can name it ({})".format(
            "; ".join(why)))
    for name, signature in FUNCTIONS.items():
        function = getattr(library, "tessera_" + name)
        result, arguments = ("i", signature[1:]) if signature[0] == "!" else signature.split(":")
        function.restype, function.argtypes = _TYPES[result], [_TYPES[a] for a in arguments]
    found = library.tessera_abi_version()
    if found != ABI:
        raise ImportError("tessera: {} has ABI {}, this package wants {}".format(path, found, ABI))
    return library


class _Library:
    """Loads the library at the first use of one of its functions, so importing costs nothing."""

    def __getattr__(self, name):
        if name not in FUNCTIONS:
            raise AttributeError(name)
        loaded = _load()
        for each in FUNCTIONS:
            setattr(self, each, getattr(loaded, "tessera_" + each))
        return getattr(self, name)


lib = _Library()

PATIENCE_AT_EXIT = 5.0  # seconds that a program which ends waits for operations that it has started
_endings = {}  # function -> the process that has asked for it


def at_exit(function):
    """Has function(failed) called when the program ends, before the library's own end: the last one first, each once.
    `failed`: an exception ends the program. Not in forked children."""
    if not _endings:
        atexit.register(_end)
    _endings[function] = os.getpid()


def _end():
    failed = getattr(sys, "last_value", None) is not None
    for function, process in reversed(list(_endings.items())):
        if process != os.getpid():
            continue
        try:
            function(failed)
        except Exception:  # the other endings still run
            traceback.print_exc()


def error_of(status, text=None, classes=ERRORS):
    """The exception for a status; its text is `text`, or the library's last error message in this thread."""
    if text is None:
        text = lib.last_error().decode(errors="replace")
    return classes.get(status, classes[SYSTEM])("tessera: " + (text or lib.status_name(status).decode()))


def call(name, *arguments):
    """Calls a function that returns a status; raises an exception if the status is an error."""
    status = getattr(lib, name)(*arguments)
    if status:
        raise error_of(status)


def options(timeout_ms=0, connect_timeout_ms=0, transport=None):
    """Options of a world; zero selects the library's default."""
    made = Options()
    call("options_init", ctypes.byref(made))
    made.timeout_ms, made.connect_timeout_ms = timeout_ms, connect_timeout_ms
    made.transport = transport.encode() if transport else None
    return made


def number(name, *handles):
    """The int32 that a function writes into its last argument."""
    value = ctypes.c_int32()
    call(name, *handles, ctypes.byref(value))
    return value.value


def handle(name, *arguments):
    """The handle that a function writes into its last argument."""
    value = ctypes.c_uint64()
    call(name, *arguments, ctypes.byref(value))
    return value.value


def text(name, *handles):
    """The text that a function copies into its caller's buffer."""
    needed = ctypes.c_int64()
    room = 256
    while True:
        buffer = ctypes.create_string_buffer(room)
        call(name, *handles, buffer, room, ctypes.byref(needed))
        if needed.value <= room:
            return buffer.value.decode(errors="replace")
        room = needed.value


def store_functions(set_value, get_value, add, remove):
    """The C form of a store in Python. `set_value(key, bytes)`, `get_value(key, seconds) -> bytes` (raises
    TimeoutError), `add(key, number) -> sum`, `remove(key)`. An exception that they raise becomes a status; the last
    such error is in the list that is returned with the structure, which must live as long as the world."""
    errors = []

    def guarded(function):
        def run(*arguments):
            try:
                function(*arguments)
                return OK
            except TimeoutError as error:
                errors[:] = [error]
                return TIMEOUT
            except BaseException as error:
                errors[:] = [error]
                return STORE
        return run

    def get(_, key, timeout_ms, value, capacity, size):
        data = get_value(key.decode(), timeout_ms / 1e3)
        size[0] = len(data)
        ctypes.memmove(value, data, min(len(data), capacity))

    def put(_, key, value, size):
        set_value(key.decode(), ctypes.string_at(value, size) if size else b"")

    def increase(_, key, delta, total):
        total[0] = add(key.decode(), delta)

    made = StoreFunctions(ctypes.sizeof(StoreFunctions), None, _SET(guarded(put)), _GET(guarded(get)),
                          _ADD(guarded(increase)), _REMOVE(guarded(lambda _, key: remove(key.decode()))))
    return made, errors
