#pragma once
/// \file
/// wire/mpi/: groups whose ranks talk through a cluster's own MPI. This header: the part of MPI that Tessera calls, as
/// a table of C functions with types that are the same for every MPI.
///
/// functions_mpi.cpp fills the table. It is compiled twice: by the build against the standard ABI (standard_abi/mpi.h)
/// as libtessera_mpi.so, for any library that has it; and on a cluster, by tools/mpi_shim.sh against the <mpi.h> there,
/// as libtessera_mpi_shim.so.

#include <stdint.h>

/// A communicator or a request of the library: its handle's bytes, whatever their type.
typedef uint64_t tessera_mpi_handle;

/// Element types and folds that the library combines itself.
enum {
  TESSERA_MPI_INT8,
  TESSERA_MPI_UINT8,
  TESSERA_MPI_INT32,
  TESSERA_MPI_INT64,
  TESSERA_MPI_FLOAT,
  TESSERA_MPI_DOUBLE
};
enum { TESSERA_MPI_SUM, TESSERA_MPI_PRODUCT, TESSERA_MPI_MIN, TESSERA_MPI_MAX };

enum { TESSERA_MPI_ABI = 1 };

/// Functions that return int return 0, or an error of the library for error_text. Operations are non-blocking: they
/// store a request, which `test` completes. Sizes in bytes unless called `count`; at most INT_MAX elements, except for
/// send and receive, which take any size.
struct tessera_mpi_functions {
  int abi;  ///< TESSERA_MPI_ABI
  /// Initializes the library unless that was done before (then *first = 0). *threads: 0: calls are allowed on one
  /// thread only; 1: on any thread, one at a time; 2: on any threads.
  int (*start)(int* threads, int* first);
  int (*ended)(void);  ///< whether the library was finalized
  int (*finish)(void);
  void (*version)(char* text, int capacity);
  int (*place)(int* rank, int* size);  ///< in MPI_COMM_WORLD
  int (*largest_tag)(void);            ///< the largest tag of a message
  /// Collective among those ranks of MPI_COMM_WORLD. `tag` distinguishes simultaneous calls of one process.
  int (*make_comm)(const int* ranks, int count, int tag, tessera_mpi_handle* comm);
  int (*free_comm)(tessera_mpi_handle comm);

  int (*send)(tessera_mpi_handle comm, const void* data, int64_t bytes, int peer, int tag, tessera_mpi_handle* request);
  /// peer -1: from any rank.
  int (*receive)(tessera_mpi_handle comm, void* data, int64_t bytes, int peer, int tag, tessera_mpi_handle* request);
  /// Cancels a receive, which still has to be tested until it is done.
  int (*cancel)(tessera_mpi_handle* request);
  /// *done: whether it has ended; then *source and *bytes (either may be null) are those of a received message.
  int (*test)(tessera_mpi_handle* request, int* done, int* source, int64_t* bytes);

  int (*barrier)(tessera_mpi_handle comm, tessera_mpi_handle* request);
  int (*broadcast)(tessera_mpi_handle comm, void* data, int bytes, int root, tessera_mpi_handle* request);
  int (*all_reduce)(tessera_mpi_handle comm, void* data, int count, int number, int fold, tessera_mpi_handle* request);
  /// The root's data are replaced; others only give theirs.
  int (*reduce)(tessera_mpi_handle comm, void* data, int count, int number, int fold, int root, int is_root,
                tessera_mpi_handle* request);
  int (*reduce_scatter)(tessera_mpi_handle comm, const void* input, void* output, int count, int number, int fold,
                        tessera_mpi_handle* request);
  /// This rank's part is in its place of the output, on every rank.
  int (*all_gather)(tessera_mpi_handle comm, void* output, int bytes, tessera_mpi_handle* request);
  /// input null: the root's part is in its place of the output.
  int (*gather)(tessera_mpi_handle comm, const void* input, void* output, int bytes, int root,
                tessera_mpi_handle* request);
  /// output null: the root's part stays in its place of the input.
  int (*scatter)(tessera_mpi_handle comm, const void* input, void* output, int bytes, int root,
                 tessera_mpi_handle* request);

  void (*error_text)(int error, char* text, int capacity);
  int (*is_truncation)(int error);  ///< a message was longer than its receive
};

/// The entry of both libraries: `const struct tessera_mpi_functions* tessera_mpi_table(void)`.
typedef const struct tessera_mpi_functions* (*tessera_mpi_entry)(void);
