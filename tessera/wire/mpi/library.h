#pragma once
/// \file
/// The process's MPI library: found and loaded when the first group needs it.

#include <tessera/wire/failure.h>
#include <tessera/wire/mpi/functions.h>

#include <sys/types.h>

#include <atomic>
#include <mutex>
#include <string>

namespace tessera::wire::mpi {

/// Thread-safe. Looks for, in this order: the file named by TESSERA_MPI_LIBRARY (a shim, or a library with the standard
/// ABI); libtessera_mpi_shim.so on the loader's path or in this library's folder; libmpi_abi.so.1 on the loader's path,
/// or in the folder lib of the MPI whose mpiexec is on PATH.
///
/// The library is finalized when the process exits, if it was initialized here and every group has ended without a
/// failure. Otherwise mpirun learns of the end without MPI_Finalize, and ends the job's other processes.
class Library {
 public:
  /// Loads it. Throws Failure (system) that names what to install.
  static Library& instance();
  /// Initializes it, unless that was done before. Collective among all processes of the job. Throws Failure.
  void start();

  const tessera_mpi_functions& functions() const { return functions_; }
  /// Calls the library, one thread at a time if it asks for that. Returns what `call(functions())` returns.
  template <class Call>
  int call(const Call& call) {
    if (many_threads_) return call(functions_);
    const std::lock_guard lock(mutex_);
    return call(functions_);
  }
  /// Throws Failure (system; mismatch for a truncated message) if `error` is one.
  void check(int error, const std::string& what);

  // Once it is initialized.
  int rank() const { return rank_; }  ///< in MPI_COMM_WORLD
  int size() const { return size_; }
  int largest_tag() const { return largest_tag_; }

  /// "Open MPI v5.0.11 ...".
  const std::string& version() const { return version_; }

  void opened() { ++open_; }
  /// Not in order: the group stays counted, and the library is not finalized.
  void closed(bool in_order);

 private:
  Library();
  static void at_exit();
  void finish_at_exit();

  const tessera_mpi_functions& functions_;
  std::string version_;
  std::mutex mutex_;
  bool started_ = false, many_threads_ = false;
  int rank_ = 0, size_ = 1, largest_tag_ = 32767;
  std::atomic<int> open_{0};
  std::atomic<bool> exiting_{false};  // at_exit() found open groups: the last one finalizes the library
  pid_t owner_ = 0;                   // the process that initialized the library, not a forked child
};

}  // namespace tessera::wire::mpi
