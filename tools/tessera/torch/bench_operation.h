#pragma once
/// \file
/// One collective of `tessera bench comm`: its tensors, a check of its result, and repeated runs.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>

#include <cstdint>
#include <string>

namespace tessera::tool {

/// The tensors of one operation at one size; any group of the same ranks may run it.
class BenchOperation {
 public:
  /// `bytes`: size of the larger tensor, rounded up to whole elements on every rank. `shared`: allocates in the shared
  /// arena (comm/shared_memory.h), which a `group` over shm or hier reads in place.
  BenchOperation(std::string op, const comm::Group& group, std::int64_t bytes, at::ScalarType dtype, bool shared);

  const std::string& op() const { return op_; }
  std::int64_t bytes() const { return bytes_; }  ///< bytes of the larger tensor
  std::int64_t wire_bytes() const {
    return wire_;
  }  ///< minimum bytes that the busiest rank must send (launch/watch/record.h)

  /// Runs the operation once on values that differ by rank and index; throws Error when an element of the result is
  /// wrong. The tensors are zero afterwards, so that sums stay small over any number of runs.
  void check(const comm::Group& group);
  /// Starts the operation and waits for it. Blocking, even on a GPU.
  void run(const comm::Group& group);

 private:
  void start_and_wait(const comm::Group& group);
  std::int64_t part() const;  ///< elements of each rank's part

  std::string op_;
  int rank_, size_;
  std::int64_t bytes_ = 0, wire_ = 0, elements_ = 0;
  at::Tensor input_, output_;  ///< input_ is undefined for operations in place
};

}  // namespace tessera::tool
