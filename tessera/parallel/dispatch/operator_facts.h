#pragma once
/// \file
/// Internal to managed_dispatch.cpp and parallel/recorder: how an operator uses the tensors it is given, derived from
/// its schema.

#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace c10 {
class OperatorHandle;
}

namespace tessera::parallel::detail {

struct OperatorFacts {
  /// Reads no data: makes views, reads or changes metadata, or calls operators that are intercepted themselves.
  bool passes = false;
  bool wants_one_dtype = false;  ///< products, convolutions, norms, recurrent cells
  std::uint64_t lists = 0;       ///< bit i: argument i may be a list of tensors (arguments past 63 always may)
  std::uint64_t writes = 0;      ///< bit i: argument i is changed in place
};

/// Computed from the schema; takes microseconds.
OperatorFacts operator_facts(const c10::OperatorHandle& op);
/// The same, cached per thread; takes nanoseconds.
const OperatorFacts& known_facts(const c10::OperatorHandle& op);

}  // namespace tessera::parallel::detail
