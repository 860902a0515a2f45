#pragma once
/// \file
/// Communication between processes for any language: collectives and messages on raw memory, without LibTorch.
/// libtessera_c.so exports exactly the functions below. Plain C99.
///
/// Handles are integers that the library looks up: 0 is none, and a handle that was never given, or was given back, is
/// a named error. Strings are UTF-8 and end with a zero byte.
///
/// Status: every function that can fail returns a tessera_status. The sentence that goes with it is
/// tessera_last_error() of the same thread. Outputs are written on success only, unless it is said otherwise.
///
/// Threads: any function may be called by any thread. Collectives of one group must be started in the same order on all
/// of its ranks, therefore by one thread at a time; send and recv may be started by others at the same time. In a child
/// after fork() every handle of the parent is a named error; the child may make worlds of its own.
///
/// Memory: buffers stay the caller's. They must not be freed, and outputs not be touched, inputs not be written, until
/// the operation has ended (tessera_work_wait(), tessera_work_test() or the return of the blocking form).
///
/// Counts are in elements, times in milliseconds. A count of 0 is an operation like any other. R is the number of ranks
/// of the group.
///
/// Texts that are copied out (char* buffer, int64_t capacity): at most `capacity` bytes with the zero byte are written;
/// the return value of `needed` (may be NULL) is what would have been enough.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version, errors ------------------------------------------------------------------------------------------- */

/// This header's. Functions are only added under one number; a struct begins with its size and only grows at its end.
enum { TESSERA_ABI_VERSION = 1 };

/// tessera_abi_version() of the loaded library; a program checks that it equals TESSERA_ABI_VERSION.
int32_t tessera_abi_version(void);
/// "1.2.3" of the loaded library. Static.
const char* tessera_version(void);

typedef int32_t tessera_status;
enum {
  TESSERA_OK = 0,
  TESSERA_INVALID = 1,   /* an argument that cannot be: null, an unknown handle, a rank out of range, ... */
  TESSERA_PEER_LOST = 2, /* another rank is gone, has left, or failed: the text names it */
  TESSERA_TIMEOUT = 3,   /* nobody came in time: the text names who is missed */
  TESSERA_MISMATCH = 4,  /* the ranks started different operations: the text names both */
  TESSERA_ABORTED = 5,   /* tessera_group_abort() of this rank or another, with its reason */
  TESSERA_SHUT_DOWN = 6, /* the world or group was ended before */
  TESSERA_STORE = 7,     /* the store could not be reached, or said no */
  TESSERA_SYSTEM = 8     /* anything else: no memory, a full disk, a refused system call */
};
/// "ok", "invalid argument", "peer lost", ... Static; "unknown status" for other numbers.
const char* tessera_status_name(tessera_status status);
/// The sentence of the last call of this thread that failed; "" when none did. Valid until this thread's next call.
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

/// Values are combined in the order of the ranks 0..R-1 on one host. fp16 and bf16 are added in fp32 and rounded once.
/// Integers wrap around. A NaN wins in min and max.
typedef int32_t tessera_op;
enum {
  TESSERA_SUM = 0,
  TESSERA_PRODUCT = 1,
  TESSERA_MIN = 2,     /* not of complex */
  TESSERA_MAX = 3,     /* not of complex */
  TESSERA_AVERAGE = 4, /* the sum divided by R once, before rounding; floating point and complex only */
  TESSERA_BAND = 5,    /* bitwise; integers and bool only, as the next two */
  TESSERA_BOR = 6,
  TESSERA_BXOR = 7
};
/// "sum". Static; "unknown" for other numbers.
const char* tessera_op_name(tessera_op op);

/* ---- worlds ---------------------------------------------------------------------------------------------------- */

typedef uint64_t tessera_world; /* the processes that met at one store */
typedef uint64_t tessera_group; /* some of them, in an order of their own */
typedef uint64_t tessera_work;  /* an operation that was started */

/// How a world is made. Zero is the default of every field. tessera_options_init() fills it in; NULL means defaults.
typedef struct tessera_options {
  int64_t size;               /* sizeof(tessera_options) */
  int64_t timeout_ms;         /* of operations that state none: how long to wait for a peer; 0: 1,800,000 */
  int64_t connect_timeout_ms; /* for all ranks to come to the store; 0: 300,000 */
  const char* transport;      /* "auto" (NULL): shm on one host, else tcp; "shm", "tcp" (also on one host) */
  const char* address;        /* where other hosts reach this process; NULL: the address that reaches the store, or
                                 the first of this host's */
  const char* host;           /* names the host: ranks with equal names share memory; NULL: asked of the kernel */
  int32_t local_rank; /* of this process on its host, as tessera_local_rank() tells it; used if local_size > 0 */
  int32_t local_size; /* 0: both are computed from the hosts of all ranks */
  int32_t join_store; /* tessera_init_store: 1: somebody else serves it, rank 0 is a client, too */
  int32_t reserved;
  const uint8_t* secret; /* tessera_init_store: 32 bytes that all ranks share; NULL: derived from the port, which
                                 keeps strangers' mistakes out, not attackers */
} tessera_options;
/// Fills in `size` and zeros.
tessera_status tessera_options_init(tessera_options* options);

/// A store that the caller provides, e.g. torch's. The functions are called by the threads that call tessera_init_*,
/// tessera_group_* and tessera_store_* only, inside of those calls, one at a time per world. They return TESSERA_OK,
/// TESSERA_TIMEOUT or any other status. `key`: letters, digits and "/_-. :"; values are any bytes.
typedef struct tessera_store_functions {
  int64_t size; /* sizeof(tessera_store_functions) */
  void* context;
  tessera_status (*set)(void* context, const char* key, const void* value, int64_t bytes);
  /* Waits until the key is there, at most timeout_ms. Writes at most `capacity` bytes and sets *bytes to the length of
     the whole value; when that is more, it is called again with room for it. */
  tessera_status (*get)(void* context, const char* key, int64_t timeout_ms, void* value, int64_t capacity,
                        int64_t* bytes);
  /* Adds to the number at the key (0 if absent) and returns the sum. */
  tessera_status (*add)(void* context, const char* key, int64_t delta, int64_t* sum);
  /* May be NULL: keys are left behind. An absent key is no error. */
  tessera_status (*remove)(void* context, const char* key);
} tessera_store_functions;

/// Makes a world from what the launcher of this process has set: tessera launch, torchrun, mpirun (Open MPI, MPICH,
/// MVAPICH2), srun, a Kubernetes Indexed Job, RANK / WORLD_SIZE / MASTER_ADDR / MASTER_PORT by hand; nothing set: one
/// rank. Where MASTER_PORT is torchrun's own store, the next port is used. `name` may be NULL; worlds that exist at one
/// time have different names. Collective: returns when every rank has come. TESSERA_INVALID: a contradictory
/// environment, listed; TESSERA_TIMEOUT: names the ranks that are missing.
tessera_status tessera_init_environment(const char* name, const tessera_options* options, tessera_world* world);
/// Meets at host:port, where rank 0 serves an authenticated store (options.join_store: it is there already). Worlds of
/// one process with equal host, port and secret share it, with different names. 0 <= rank < size.
tessera_status tessera_init_store(const char* host, int32_t port, int32_t rank, int32_t size, const char* name,
                                  const tessera_options* options, tessera_world* world);
/// Meets in a folder that all ranks see, made if absent: each key is a file. For tests and one host. A world's name is
/// used once per folder.
tessera_status tessera_init_folder(const char* folder, int32_t rank, int32_t size, const char* name,
                                   const tessera_options* options, tessera_world* world);
/// Meets in the caller's store. The functions and their context must live until tessera_shutdown(). `name` prefixes
/// every key and is used once per store.
tessera_status tessera_init_functions(const tessera_store_functions* store, int32_t rank, int32_t size,
                                      const char* name, const tessera_options* options, tessera_world* world);
/// Ends the world and all its groups: operations that have not ended fail with TESSERA_SHUT_DOWN here, with
/// TESSERA_PEER_LOST elsewhere. Works may still be asked and freed. Blocks until this rank's threads have ended, not
/// for other ranks (a barrier before it makes the end orderly).
tessera_status tessera_shutdown(tessera_world world);

/* ---- topology -------------------------------------------------------------------------------------------------- */

tessera_status tessera_rank(tessera_world world, int32_t* rank);
tessera_status tessera_size(tessera_world world, int32_t* size);
/// The place of this rank among those of its host, and their number.
tessera_status tessera_local_rank(tessera_world world, int32_t* rank);
tessera_status tessera_local_size(tessera_world world, int32_t* size);
/// Hosts are numbered in the order of their first rank.
tessera_status tessera_host_count(tessera_world world, int32_t* hosts);
/// The number of the host of a rank of the world.
tessera_status tessera_host_of(tessera_world world, int32_t rank, int32_t* host);
/// Its name, as errors use it.
tessera_status tessera_host_name(tessera_world world, int32_t host, char* buffer, int64_t capacity, int64_t* needed);

/* ---- the world's store ----------------------------------------------------------------------------------------- */

/// For facts that the program's ranks tell each other (keys apart from the library's own). `bytes` <= 64 MB.
tessera_status tessera_store_set(tessera_world world, const char* key, const void* value, int64_t bytes);
/// Waits for the key, at most timeout_ms (TESSERA_TIMEOUT names it). Writes at most `capacity` bytes; *bytes is the
/// length of the whole value, also when that is more (then call again).
tessera_status tessera_store_get(tessera_world world, const char* key, int64_t timeout_ms, void* value,
                                 int64_t capacity, int64_t* bytes);
tessera_status tessera_store_add(tessera_world world, const char* key, int64_t delta, int64_t* sum);
tessera_status tessera_store_remove(tessera_world world, const char* key);

/* ---- groups ---------------------------------------------------------------------------------------------------- */

/// All ranks of the world, named "world". Each call gives the same handle.
tessera_status tessera_world_group(tessera_world world, tessera_group* group);
/// A group of some ranks of the world, in this order. Collective among those ranks only: nobody else calls it. `name`
/// is used in errors and together with the ranks tells groups apart (NULL: made from the ranks); several groups with
/// equal name and ranks are told apart by the order in which they are made. This rank must be one of `ranks`, which are
/// all different.
tessera_status tessera_group_create(tessera_world world, const int32_t* ranks, int32_t count, const char* name,
                                    tessera_group* group);
/// Every rank of `parent` calls it; those with equal colour form a group, ordered by key, then by rank in the parent.
/// colour -1: in none, *group becomes 0.
tessera_status tessera_group_split(tessera_group parent, int32_t colour, int32_t key, const char* name,
                                   tessera_group* group);
/// A living group of this process by its name; the one made last. TESSERA_INVALID when there is none.
tessera_status tessera_group_find(tessera_world world, const char* name, tessera_group* group);
/// Ends the group here; as tessera_shutdown() for one group. The group "world" ends with its world only.
tessera_status tessera_group_destroy(tessera_group group);
/// Every operation of the group, here and on all ranks, present and future, fails with TESSERA_ABORTED and the reason
/// (cut to 3,000 bytes). At once, also while others wait in it. Any thread.
tessera_status tessera_group_abort(tessera_group group, const char* reason);
/// Whether it can be used: TESSERA_OK, or why not, as operations that start now would return it.
tessera_status tessera_group_state(tessera_group group);
tessera_status tessera_group_rank(tessera_group group, int32_t* rank);
tessera_status tessera_group_size(tessera_group group, int32_t* size);
/// The world's ranks of its members, in its order. `capacity`: of `ranks`, at least R.
tessera_status tessera_group_ranks(tessera_group group, int32_t* ranks, int32_t capacity);
tessera_status tessera_group_name(tessera_group group, char* buffer, int64_t capacity, int64_t* needed);
/// "local" (one rank), "shm", "tcp".
tessera_status tessera_group_transport(tessera_group group, char* buffer, int64_t capacity, int64_t* needed);
/// The time that operations which start later and state none wait for a peer. > 0.
tessera_status tessera_group_set_timeout(tessera_group group, int64_t timeout_ms);

/* ---- operations ------------------------------------------------------------------------------------------------ */

/// What an operation may state besides its arguments; NULL means defaults. Ranks state the same scales.
typedef struct tessera_call {
  int64_t size;       /* sizeof(tessera_call) */
  int64_t timeout_ms; /* how long to wait for a peer; 0: the group's */
  double prescale;    /* reductions: inputs are multiplied by it first (rounded to the dtype); 0: 1. Floating point and
                         complex only, as the next */
  double postscale;   /* reductions: the result is multiplied by it; 0: 1 */
  const char* label;  /* what the operation belongs to: in errors and the timeline, and part of what must be equal on
                         all ranks of a collective (cut to 31 bytes); NULL: nothing */
} tessera_call;

/// All operations: `work` NULL: returns when it has ended, with its status. Else it is started, *work is its handle
/// (to be freed), and the status says whether it could be started; what it ends with is told by the handle.
/// An operation that fails for another reason than its arguments leaves the whole group failed, on all ranks: the next
/// one says so where this one was over already (over tcp the root of a broadcast may be done before others look).
/// In place: wherever input and output have equal sizes, they may be the same pointer; they may not overlap otherwise.

/// input [count] -> output [count], on all ranks.
tessera_status tessera_all_reduce(tessera_group group, const void* input, void* output, int64_t count,
                                  tessera_dtype dtype, tessera_op op, const tessera_call* call, tessera_work* work);
/// input [count] -> output [count] on `root` (a rank of the group); elsewhere output is not used and may be NULL.
tessera_status tessera_reduce(tessera_group group, const void* input, void* output, int64_t count, tessera_dtype dtype,
                              tessera_op op, int32_t root, const tessera_call* call, tessera_work* work);
/// data [count] of root -> data [count] of all.
tessera_status tessera_broadcast(tessera_group group, void* data, int64_t count, tessera_dtype dtype, int32_t root,
                                 const tessera_call* call, tessera_work* work);
/// input [count] -> output [R * count]. input may be this rank's part of output.
tessera_status tessera_all_gather(tessera_group group, const void* input, void* output, int64_t count,
                                  tessera_dtype dtype, const tessera_call* call, tessera_work* work);
/// Likewise with counts[r] elements of rank r, equal on all ranks: input [counts[rank]] -> output [sum of counts].
tessera_status tessera_all_gather_v(tessera_group group, const void* input, void* output, const int64_t* counts,
                                    tessera_dtype dtype, const tessera_call* call, tessera_work* work);
/// input [count] -> output [R * count] on root; elsewhere output is not used.
tessera_status tessera_gather(tessera_group group, const void* input, void* output, int64_t count, tessera_dtype dtype,
                              int32_t root, const tessera_call* call, tessera_work* work);
/// input [R * count] on root (elsewhere not used) -> output [count].
tessera_status tessera_scatter(tessera_group group, const void* input, void* output, int64_t count, tessera_dtype dtype,
                               int32_t root, const tessera_call* call, tessera_work* work);
/// input [R * count] -> output [count]: part `rank` of the reduction. input keeps its values.
tessera_status tessera_reduce_scatter(tessera_group group, const void* input, void* output, int64_t count,
                                      tessera_dtype dtype, tessera_op op, const tessera_call* call, tessera_work* work);
/// Likewise with parts of counts[r] elements for rank r, equal on all ranks: input [sum] -> output [counts[rank]].
tessera_status tessera_reduce_scatter_v(tessera_group group, const void* input, void* output, const int64_t* counts,
                                        tessera_dtype dtype, tessera_op op, const tessera_call* call,
                                        tessera_work* work);
/// input [R * count]: part r goes to rank r -> output [R * count]: part r comes from rank r.
tessera_status tessera_all_to_all(tessera_group group, const void* input, void* output, int64_t count,
                                  tessera_dtype dtype, const tessera_call* call, tessera_work* work);
/// Likewise with input_counts[r] elements to rank r, output_counts[r] from rank r, one behind the other. What one sends
/// must be what the other expects (TESSERA_MISMATCH). The counts are copied.
tessera_status tessera_all_to_all_v(tessera_group group, const void* input, const int64_t* input_counts, void* output,
                                    const int64_t* output_counts, tessera_dtype dtype, const tessera_call* call,
                                    tessera_work* work);
/// Ends when every rank has started it. A timeout names who is missing.
tessera_status tessera_barrier(tessera_group group, const tessera_call* call, tessera_work* work);

enum { TESSERA_ANY_SOURCE = -1 };
/// A message to another rank of the group. Messages of one pair and tag (>= 0) arrive in the order in which they were
/// started, with the count and dtype of the receive (TESSERA_MISMATCH). Ends when its memory may be used again: shm:
/// when it was received; tcp: when it is on its way.
tessera_status tessera_send(tessera_group group, const void* data, int64_t count, tessera_dtype dtype,
                            int32_t destination, int32_t tag, const tessera_call* call, tessera_work* work);
/// `source`: a rank of the group, or TESSERA_ANY_SOURCE. `from` (may be NULL): the blocking form writes the rank that
/// sent it; of a work ask tessera_work_source().
tessera_status tessera_recv(tessera_group group, void* data, int64_t count, tessera_dtype dtype, int32_t source,
                            int32_t tag, int32_t* from, const tessera_call* call, tessera_work* work);

/* ---- several at once ------------------------------------------------------------------------------------------- */

/// Operations that this thread starts in the group from here to tessera_batch_end() are collected (`work` NULL: they do
/// not block; giving one is TESSERA_INVALID) and then started together: neighbouring all_reduces of one dtype, op and
/// scale travel as one, messages are all under way before any is waited for.
tessera_status tessera_batch_begin(tessera_group group);
/// Starts them. `work` as of an operation: ends when all have. An error of one is the error of the batch.
tessera_status tessera_batch_end(tessera_group group, tessera_work* work);

/* ---- works ----------------------------------------------------------------------------------------------------- */

/// Blocks until the operation has ended, at most timeout_ms (-1: as long as it takes): the status with which it ended.
/// TESSERA_TIMEOUT with *ended (may be NULL) 0: it goes on and can be waited for again; *ended is 1 in all other cases.
/// Any number of threads may wait, any number of times.
tessera_status tessera_work_wait(tessera_work work, int64_t timeout_ms, int32_t* ended);
/// *ended: 1 when it has ended, 0 if not. Does not block. The status is that of the question, not of the operation.
tessera_status tessera_work_test(tessera_work work, int32_t* ended);
/// The status with which an ended operation ended, as tessera_work_wait() returns it. TESSERA_INVALID: not ended yet.
tessera_status tessera_work_status(tessera_work work);
/// The sentence of an operation that ended with an error; "" for one that went well or goes on.
tessera_status tessera_work_error(tessera_work work, char* buffer, int64_t capacity, int64_t* needed);
/// The rank in the group that sent what an ended recv received.
tessera_status tessera_work_source(tessera_work work, int32_t* rank);
/// Gives the handle back. An operation that goes on is not stopped: its memory must live until it has ended.
tessera_status tessera_work_free(tessera_work work);

/* ---- memory, tensors ------------------------------------------------------------------------------------------- */

/// Memory that the ranks of this host read directly, without a copy (64-byte aligned). bytes >= 1.
tessera_status tessera_memory_allocate(int64_t bytes, void** memory);
/// What tessera_memory_allocate() gave. NULL is nothing.
tessera_status tessera_memory_free(void* memory);

/// A dense tensor of a host as the operations take it.
typedef struct tessera_view {
  void* data;
  int64_t count;
  tessera_dtype dtype;
  int32_t read_only; /* 1: not for outputs */
} tessera_view;
/// Reads a DLManagedTensorVersioned (versioned 1: the pointer in a capsule named "dltensor_versioned") or a
/// DLManagedTensor (0: "dltensor"). It stays the caller's, and must live as long as the view. TESSERA_INVALID: another
/// major version than 1, a device that is not the CPU, elements that are not dense in row-major order, a dtype that the
/// operations do not know.
tessera_status tessera_view_dlpack(const void* managed, int32_t versioned, tessera_view* view);

/* ---- what happened --------------------------------------------------------------------------------------------- */

/// Writes every operation of this rank that ends from now on into a file in Chrome's trace format (one process per
/// rank, one row per group), until tessera_timeline_stop() or the end of the world. An existing file is replaced.
tessera_status tessera_timeline_start(tessera_world world, const char* path);
tessera_status tessera_timeline_stop(tessera_world world);
/// For people: the groups of this rank, what each has started and not ended and for how long, for whom it waits, the
/// last operations, bytes and times per operation. Any thread, also while others are blocked.
tessera_status tessera_report(tessera_world world, char* buffer, int64_t capacity, int64_t* needed);

#ifdef __cplusplus
}
#endif
