#pragma once
/// \file
/// Internal to managed_dispatch.cpp and parallel/recorder: what an operator does with the tensors it is given, read off
/// its schema.

#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace c10 {
class OperatorHandle;
}

namespace tessera::parallel::detail {

struct OperatorFacts {
  /// Reads no data: makes views, looks at or changes metadata, or ends in operators that are seen by themselves.
  bool passes = false;
  bool wants_one_dtype = false;  ///< products, convolutions, norms, recurrent cells
  std::uint64_t lists = 0;       ///< bit i: argument i may be a list of tensors (those past 63 always may)
  std::uint64_t writes = 0;      ///< bit i: argument i is changed in place
};

/// From the schema; microseconds.
OperatorFacts operator_facts(const c10::OperatorHandle& op);
/// The same, remembered per thread; nanoseconds.
const OperatorFacts& known_facts(const c10::OperatorHandle& op);

}  // namespace tessera::parallel::detail
