#pragma once
/// \file
/// Communication between processes for any language: collectives and messages on raw memory, without LibTorch.
/// libtessera_c.so exports exactly the functions below. Plain C99.
///
/// Handles are integers that the library looks up. 0 is the null handle; using a handle that was never issued, or was
/// freed, is an error that names it. Strings are UTF-8 and null-terminated.
///
/// Status: every function that can fail returns a tessera_status; tessera_last_error() on the same thread returns the
/// message. Outputs are written on success only, unless documented otherwise.
///
/// Threads: any function may be called by any thread. Collectives of one group must be started in the same order on all
/// of its ranks, and therefore by one thread at a time; other threads may start send and recv concurrently. In a child
/// after fork() every handle of the parent is an error; the child may create its own worlds.
///
/// Memory: buffers belong to the caller. Until the operation has ended (tessera_work_wait(), tessera_work_test() or the
/// return of the blocking form), do not free them, do not access outputs and do not write inputs.
///
/// Counts are in elements, times in milliseconds. A count of 0 is valid. R is the number of ranks of the group.
///
/// Texts that are copied out (char* buffer, int64_t capacity): at most `capacity` bytes are written, the terminating
/// zero included; `needed` (may be NULL) receives the capacity required for the whole text.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version, errors ------------------------------------------------------------------------------------------- */

/// This header's version. Under one number, functions are only added; a struct starts with its size and only grows at
/// its end.
enum { TESSERA_ABI_VERSION = 1 };

/// tessera_abi_version() of the loaded library; programs should check that it equals TESSERA_ABI_VERSION.
int32_t tessera_abi_version(void);
/// Version of the loaded library: "1.2.3". Static.
const char* tessera_version(void);

typedef int32_t tessera_status;
enum {
  TESSERA_OK = 0,
  TESSERA_INVALID = 1,   /* an invalid argument: null, an unknown handle, a rank out of range, ... */
  TESSERA_PEER_LOST = 2, /* another rank is gone, has left, or failed: the text names it */
  TESSERA_TIMEOUT = 3,   /* a rank did not arrive in time: the text names it */
  TESSERA_MISMATCH = 4,  /* the ranks started different operations: the text names both */
  TESSERA_ABORTED = 5,   /* tessera_group_abort() on this rank or another; the text has the reason */
  TESSERA_SHUT_DOWN = 6, /* the world or group has been ended */
  TESSERA_STORE = 7,     /* the store is unreachable, or refused */
  TESSERA_SYSTEM = 8     /* anything else: no memory, a full disk, a refused system call */
};
/// "ok", "invalid argument", "peer lost", ... Static; "unknown status" for other numbers.
const char* tessera_status_name(tessera_status status);
/// The message of this thread's last failed call; "" if none has failed. Valid until this thread's next call.
const char* tessera_last_error(void);

/* ---- types and reductions -------------------------------------------------------------------------------------- */

typedef int32_t tessera_dtype;
enum {
  TESSERA_UINT8 = 0,
  TESSERA_INT8 = 1,
  TESSERA_INT16 = 2,
  TESSERA_INT32 = 3,
  TESSERA_INT64 = 4,
  TESSERA_FLOAT16 = 5, /* IEEE half */
  TESSERA_BFLOAT16 = 6,
  TESSERA_FLOAT32 = 7,
  TESSERA_FLOAT64 = 8,
  TESSERA_BOOL = 9,       /* a byte, 0 or 1; sum is or, product is and */
  TESSERA_COMPLEX64 = 10, /* pairs of fp32: real, imaginary */
  TESSERA_COMPLEX128 = 11 /* pairs of fp64 */
};
/// Bytes of an element; 0 for an unknown number.
int64_t tessera_dtype_size(tessera_dtype dtype);
/// "float32". Static; "unknown" for other numbers.
const char* tessera_dtype_name(tessera_dtype dtype);

/// On one host, values are combined in the order of the ranks 0..R-1. fp16 and bf16 are added in fp32 and rounded once.
/// Integers wrap around. min and max propagate NaN.
typedef int32_t tessera_op;
enum {
  TESSERA_SUM = 0,
  TESSERA_PRODUCT = 1,
  TESSERA_MIN = 2,     /* not for complex */
  TESSERA_MAX = 3,     /* not for complex */
  TESSERA_AVERAGE = 4, /* the sum divided once by R, before rounding; floating point and complex only */
  TESSERA_BAND = 5,    /* bitwise, like the next two; integers and bool only */
  TESSERA_BOR = 6,
  TESSERA_BXOR = 7
};
/// "sum". Static; "unknown" for other numbers.
const char* tessera_op_name(tessera_op op);

/* ---- worlds ---------------------------------------------------------------------------------------------------- */

typedef uint64_t tessera_world; /* the processes that met at one store */
typedef uint64_t tessera_group; /* some of them, in its own order */
typedef uint64_t tessera_work;  /* a started operation */

/// Options of a new world. Zero is the default of every field; tessera_options_init() initializes it. NULL means
/// defaults.
typedef struct tessera_options {
  int64_t size;               /* sizeof(tessera_options) */
  int64_t timeout_ms;         /* default wait for a peer in an operation; 0: 1,800,000 */
  int64_t connect_timeout_ms; /* for all ranks to join; 0: 300,000 */
  const char* transport;      /* "auto" (NULL): shm on one host, else tcp; "shm", "tcp" (also on one host) */
  const char* address;        /* where other hosts reach this process; NULL: the address of the route to the store,
                                 or this host's first */
  const char* host;           /* the host's name: ranks with equal names share memory; NULL: from the kernel */
  int32_t local_rank;         /* as returned by tessera_local_rank(); used if local_size > 0 */
  int32_t local_size;         /* 0: both are computed from the hosts of all ranks */
  int32_t join_store;         /* tessera_init_store: 1: another process serves the store, rank 0 is a client, too */
  int32_t reserved;
  const uint8_t* secret; /* tessera_init_store: 32 bytes that all ranks share; NULL: derived from the port, which
                                 stops accidental connections, not attackers */
} tessera_options;
/// Sets `size`, and everything else to zero.
tessera_status tessera_options_init(tessera_options* options);

/// A store provided by the caller, e.g. torch's. Its functions are called only by threads inside tessera_init_*,
/// tessera_group_* and tessera_store_*, one at a time per world. They return TESSERA_OK, TESSERA_TIMEOUT or any other
/// status. `key`: letters, digits and "/_-. :"; values are any bytes.
typedef struct tessera_store_functions {
  int64_t size; /* sizeof(tessera_store_functions) */
  void* context;
  tessera_status (*set)(void* context, const char* key, const void* value, int64_t bytes);
  /* Waits for the key, at most timeout_ms. Writes at most `capacity` bytes and sets *bytes to the length of the whole
     value; if that is more, it is called again with enough capacity. */
  tessera_status (*get)(void* context, const char* key, int64_t timeout_ms, void* value, int64_t capacity,
                        int64_t* bytes);
  /* Adds to the number stored at the key (0 if absent) and returns the sum. */
  tessera_status (*add)(void* context, const char* key, int64_t delta, int64_t* sum);
  /* May be NULL: keys are then never removed. An absent key is not an error. */
  tessera_status (*remove)(void* context, const char* key);
} tessera_store_functions;

/// Creates a world from the environment set by this process's launcher: tessera launch, torchrun, mpirun (Open MPI,
/// MPICH, MVAPICH2), srun, a Kubernetes Indexed Job, or RANK / WORLD_SIZE / MASTER_ADDR / MASTER_PORT set by hand;
/// without any of these, one rank. If MASTER_PORT is torchrun's own store, the next port is used. `name` may be NULL;
/// worlds that exist at the same time need different names. Collective: returns when every rank has joined.
/// TESSERA_INVALID: the variables contradict each other (the message lists them); TESSERA_TIMEOUT: names the missing
/// ranks.
tessera_status tessera_init_environment(const char* name, const tessera_options* options, tessera_world* world);
/// Joins at host:port, where rank 0 serves an authenticated store (options.join_store: the store already exists).
/// Worlds of one process with equal host, port and secret share it under different names. 0 <= rank < size.
tessera_status tessera_init_store(const char* host, int32_t port, int32_t rank, int32_t size, const char* name,
                                  const tessera_options* options, tessera_world* world);
/// Joins through a folder visible to all ranks, created if absent: each key is a file. For tests and one host. A
/// world's name can be used only once per folder.
tessera_status tessera_init_folder(const char* folder, int32_t rank, int32_t size, const char* name,
                                   const tessera_options* options, tessera_world* world);
/// Joins through the caller's store. The functions and their context must live until tessera_shutdown(). `name`
/// prefixes every key and can be used only once per store.
tessera_status tessera_init_functions(const tessera_store_functions* store, int32_t rank, int32_t size,
                                      const char* name, const tessera_options* options, tessera_world* world);
/// Ends the world and all its groups: unfinished operations fail with TESSERA_SHUT_DOWN here and with TESSERA_PEER_LOST
/// on other ranks. Works may still be queried and freed. Blocks until this rank's threads have ended, but does not wait
/// for other ranks (call a barrier first for an orderly end). Over TCP, a process that ends without it may break the
/// last operations of its peers.
tessera_status tessera_shutdown(tessera_world world);

/* ---- topology -------------------------------------------------------------------------------------------------- */

tessera_status tessera_rank(tessera_world world, int32_t* rank);
tessera_status tessera_size(tessera_world world, int32_t* size);
/// This rank's index among the ranks of its host, and their number.
tessera_status tessera_local_rank(tessera_world world, int32_t* rank);
tessera_status tessera_local_size(tessera_world world, int32_t* size);
/// Number of hosts. Hosts are numbered by their first rank.
tessera_status tessera_host_count(tessera_world world, int32_t* hosts);
/// The number of the host on which a rank of the world runs.
tessera_status tessera_host_of(tessera_world world, int32_t rank, int32_t* host);
/// A host's name, as in error messages.
tessera_status tessera_host_name(tessera_world world, int32_t host, char* buffer, int64_t capacity, int64_t* needed);

/* ---- the world's store ----------------------------------------------------------------------------------------- */

/// Stores a value for the program's other ranks (its keys are separate from the library's own). `bytes` <= 64 MB.
tessera_status tessera_store_set(tessera_world world, const char* key, const void* value, int64_t bytes);
/// Waits for the key, at most timeout_ms (TESSERA_TIMEOUT names it). Writes at most `capacity` bytes; *bytes is the
/// length of the whole value, even if that is more (then call again).
tessera_status tessera_store_get(tessera_world world, const char* key, int64_t timeout_ms, void* value,
                                 int64_t capacity, int64_t* bytes);
tessera_status tessera_store_add(tessera_world world, const char* key, int64_t delta, int64_t* sum);
tessera_status tessera_store_remove(tessera_world world, const char* key);

/* ---- groups ---------------------------------------------------------------------------------------------------- */

/// All ranks of the world, named "world". Every call returns the same handle.
tessera_status tessera_world_group(tessera_world world, tessera_group* group);
/// Creates a group of some ranks of the world, in this order. Collective among those ranks only; other ranks do not
/// call it. `name` appears in errors and, together with the ranks, identifies the group (NULL: derived from the ranks);
/// groups with equal name and ranks are distinguished by their order of creation. `ranks` are distinct and include this
/// rank.
tessera_status tessera_group_create(tessera_world world, const int32_t* ranks, int32_t count, const char* name,
                                    tessera_group* group);
/// Every rank of `parent` calls it; ranks with equal colour form a group, ordered by key, then by rank in the parent.
/// colour -1: no group, *group becomes 0.
tessera_status tessera_group_split(tessera_group parent, int32_t colour, int32_t key, const char* name,
                                   tessera_group* group);
/// Finds an existing group of this process by name, the newest if several have it. TESSERA_INVALID if there is no such
/// group.
tessera_status tessera_group_find(tessera_world world, const char* name, tessera_group* group);
/// Ends the group on this rank, like tessera_shutdown() for a single group. The group "world" ends only with its world.
tessera_status tessera_group_destroy(tessera_group group);
/// Makes every current and future operation of the group, on all ranks, fail with TESSERA_ABORTED and the reason
/// (truncated to 3,000 bytes). Takes effect immediately, even for waiting ranks. Any thread.
tessera_status tessera_group_abort(tessera_group group, const char* reason);
/// Whether the group is usable: TESSERA_OK, or the status that a newly started operation would return.
tessera_status tessera_group_state(tessera_group group);
tessera_status tessera_group_rank(tessera_group group, int32_t* rank);
tessera_status tessera_group_size(tessera_group group, int32_t* size);
/// The world ranks of the group's members, in the group's order. `capacity`: length of `ranks`, at least R.
tessera_status tessera_group_ranks(tessera_group group, int32_t* ranks, int32_t capacity);
tessera_status tessera_group_name(tessera_group group, char* buffer, int64_t capacity, int64_t* needed);
/// The transport in use: "local" (one rank), "shm" or "tcp".
tessera_status tessera_group_transport(tessera_group group, char* buffer, int64_t capacity, int64_t* needed);
/// Sets how long later operations without their own timeout wait for a peer; must be > 0.
tessera_status tessera_group_set_timeout(tessera_group group, int64_t timeout_ms);

/* ---- operations ------------------------------------------------------------------------------------------------ */

/// Optional parameters of an operation; NULL means defaults. All ranks must pass the same scales.
typedef struct tessera_call {
  int64_t size;       /* sizeof(tessera_call) */
  int64_t timeout_ms; /* limit for a wait for a peer; 0: the group's */
  double prescale;    /* reductions: multiplies inputs first (rounded to the dtype); 0: 1. Floating point and complex
                         only, like the next */
  double postscale;   /* reductions: multiplies the result; 0: 1 */
  const char* label;  /* describes the operation in errors and the timeline; must be equal on all ranks of a collective
                         (truncated to 31 bytes); NULL: no label */
} tessera_call;

/// All operations: if `work` is NULL, the call returns when the operation has ended, with its status. Otherwise it only
/// starts the operation and sets *work to its handle, which the caller must free; the returned status then covers only
/// the start, and the handle reports the result. An operation that fails for any reason other than its arguments makes
/// the whole group fail, on all ranks. A rank on which it had already ended gets the error from its next operation
/// (over tcp, the root of a broadcast may finish before the others check). In place: if input and output have equal
/// sizes, they may be the same pointer; otherwise they must not overlap.

/// input [count] -> output [count], on all ranks.
tessera_status tessera_all_reduce(tessera_group group, const void* input, void* output, int64_t count,
                                  tessera_dtype dtype, tessera_op op, const tessera_call* call, tessera_work* work);
/// input [count] -> output [count] on `root` (a rank of the group); on other ranks, output is ignored and may be NULL.
tessera_status tessera_reduce(tessera_group group, const void* input, void* output, int64_t count, tessera_dtype dtype,
                              tessera_op op, int32_t root, const tessera_call* call, tessera_work* work);
/// data [count] of the root -> data [count] on all ranks.
tessera_status tessera_broadcast(tessera_group group, void* data, int64_t count, tessera_dtype dtype, int32_t root,
                                 const tessera_call* call, tessera_work* work);
/// input [count] -> output [R * count]. input may be this rank's part of output.
tessera_status tessera_all_gather(tessera_group group, const void* input, void* output, int64_t count,
                                  tessera_dtype dtype, const tessera_call* call, tessera_work* work);
/// As above with counts[r] elements from rank r, equal on all ranks: input [counts[rank]] -> output [sum of counts].
tessera_status tessera_all_gather_v(tessera_group group, const void* input, void* output, const int64_t* counts,
                                    tessera_dtype dtype, const tessera_call* call, tessera_work* work);
/// input [count] -> output [R * count] on root; output is ignored elsewhere.
tessera_status tessera_gather(tessera_group group, const void* input, void* output, int64_t count, tessera_dtype dtype,
                              int32_t root, const tessera_call* call, tessera_work* work);
/// input [R * count] on root (ignored elsewhere) -> output [count].
tessera_status tessera_scatter(tessera_group group, const void* input, void* output, int64_t count, tessera_dtype dtype,
                               int32_t root, const tessera_call* call, tessera_work* work);
/// input [R * count] -> output [count]: part `rank` of the reduction. input is not modified.
tessera_status tessera_reduce_scatter(tessera_group group, const void* input, void* output, int64_t count,
                                      tessera_dtype dtype, tessera_op op, const tessera_call* call, tessera_work* work);
/// As above with parts of counts[r] elements for rank r, equal on all ranks: input [sum] -> output [counts[rank]].
tessera_status tessera_reduce_scatter_v(tessera_group group, const void* input, void* output, const int64_t* counts,
                                        tessera_dtype dtype, tessera_op op, const tessera_call* call,
                                        tessera_work* work);
/// input [R * count]: part r goes to rank r -> output [R * count]: part r comes from rank r.
tessera_status tessera_all_to_all(tessera_group group, const void* input, void* output, int64_t count,
                                  tessera_dtype dtype, const tessera_call* call, tessera_work* work);
/// As above with input_counts[r] elements to rank r and output_counts[r] from rank r, stored consecutively. The counts
/// of sender and receiver must match (TESSERA_MISMATCH). The counts are copied.
tessera_status tessera_all_to_all_v(tessera_group group, const void* input, const int64_t* input_counts, void* output,
                                    const int64_t* output_counts, tessera_dtype dtype, const tessera_call* call,
                                    tessera_work* work);
/// Ends when every rank has started it. A timeout names the missing ranks.
tessera_status tessera_barrier(tessera_group group, const tessera_call* call, tessera_work* work);

enum { TESSERA_ANY_SOURCE = -1 };
/// Sends a message to another rank of the group. Messages of one pair and tag (>= 0) arrive in the order in which they
/// were started, and must match the receive's count and dtype (TESSERA_MISMATCH). Ends when its memory may be reused:
/// with shm when it was received, with tcp when it is in transit.
tessera_status tessera_send(tessera_group group, const void* data, int64_t count, tessera_dtype dtype,
                            int32_t destination, int32_t tag, const tessera_call* call, tessera_work* work);
/// `source`: a rank of the group, or TESSERA_ANY_SOURCE. `from` (may be NULL): receives the sender's rank in the
/// blocking form; for a work use tessera_work_source().
tessera_status tessera_recv(tessera_group group, void* data, int64_t count, tessera_dtype dtype, int32_t source,
                            int32_t tag, int32_t* from, const tessera_call* call, tessera_work* work);

/* ---- several at once ------------------------------------------------------------------------------------------- */

/// Collects the operations that this thread starts in the group until tessera_batch_end(), then starts them together.
/// Until then they do not block; their `work` must be NULL (else TESSERA_INVALID). Adjacent all_reduces of the same
/// dtype, op and scale are sent as one; all messages are started before any is waited for.
tessera_status tessera_batch_begin(tessera_group group);
/// Starts the collected operations. `work` is used as by a single operation and ends when all of them have ended. If
/// one fails, the batch fails with its error.
tessera_status tessera_batch_end(tessera_group group, tessera_work* work);

/* ---- works ----------------------------------------------------------------------------------------------------- */

/// Blocks until the operation has ended, at most timeout_ms (-1: no limit), and returns its status. TESSERA_TIMEOUT
/// with *ended (may be NULL) 0: it continues and can be waited for again; in all other cases *ended is 1. Any number of
/// threads may wait, any number of times.
tessera_status tessera_work_wait(tessera_work work, int64_t timeout_ms, int32_t* ended);
/// *ended: 1 if it has ended, else 0. Does not block. The returned status is that of this call, not of the operation.
tessera_status tessera_work_test(tessera_work work, int32_t* ended);
/// The status of an ended operation, as returned by tessera_work_wait(). TESSERA_INVALID: not ended yet.
tessera_status tessera_work_status(tessera_work work);
/// The message of an operation that ended with an error; "" if it succeeded or has not ended.
tessera_status tessera_work_error(tessera_work work, char* buffer, int64_t capacity, int64_t* needed);
/// The sender's rank in the group, for an ended recv.
tessera_status tessera_work_source(tessera_work work, int32_t* rank);
/// Frees the handle. A running operation is not stopped: its memory must live until it has ended.
tessera_status tessera_work_free(tessera_work work);

/* ---- memory, tensors ------------------------------------------------------------------------------------------- */

/// Allocates memory that this host's ranks read directly, without a copy (64-byte aligned). bytes >= 1.
tessera_status tessera_memory_allocate(int64_t bytes, void** memory);
/// `memory`: from tessera_memory_allocate(). NULL is ignored.
tessera_status tessera_memory_free(void* memory);

/// A dense host tensor, as the operations need it.
typedef struct tessera_view {
  void* data;
  int64_t count;
  tessera_dtype dtype;
  int32_t read_only; /* 1: not for outputs */
} tessera_view;
/// Reads a DLManagedTensorVersioned (versioned 1: the pointer in a capsule named "dltensor_versioned") or a
/// DLManagedTensor (0: "dltensor"). The tensor still belongs to the caller and must outlive the view. TESSERA_INVALID:
/// a major version other than 1, a device other than the CPU, elements that are not dense in row-major order, or an
/// unsupported dtype.
tessera_status tessera_view_dlpack(const void* managed, int32_t versioned, tessera_view* view);

/* ---- diagnostics ----------------------------------------------------------------------------------------------- */

/// Writes every operation of this rank that ends after this call to a file in Chrome's trace format (one process per
/// rank, one row per group), until tessera_timeline_stop() or the end of the world. An existing file is replaced.
tessera_status tessera_timeline_start(tessera_world world, const char* path);
tessera_status tessera_timeline_stop(tessera_world world);
/// A report for display: this rank's groups, their unfinished operations with their age and the ranks they wait for,
/// recent operations, bytes and times per operation. Any thread, even while others are blocked.
tessera_status tessera_report(tessera_world world, char* buffer, int64_t capacity, int64_t* needed);

#ifdef __cplusplus
}
#endif
