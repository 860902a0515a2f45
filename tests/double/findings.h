#pragma once
/// \file
/// What the double of the CUDA device found wrong and what it counted, with the call stacks, and the report of both.
/// This file knows neither tensors nor memory. Every function may be called from any thread.
///
/// Environment: DOUBLE_REPORT=FILE writes FILE.rank<RANK>.<pid> at the end of the process (call_sites.py reads it);
/// without it findings go to stderr.

#include <cstddef>
#include <string>

namespace cuda_double {

/// A kind of fault in the code that uses the device.
enum class Kind {
  race,           ///< an access that is not ordered behind an earlier one of another stream
  uninitialized,  ///< a read of bytes that nothing wrote
  freed_in_use,   ///< memory given back while another stream may still use it
  mixed_devices,  ///< one operator with tensors of two devices, or a host pointer in a kernel
  wrong_device,   ///< a kernel launched while another device than that of its memory was current
  no_kernel,      ///< an operator that the double cannot compute: a gap of the double itself
  host_access,    ///< the host touched device memory
  not_here,       ///< an operator on a tensor whose storage was released
};

/// Adds a finding with the caller's stack. The same text is kept once and counted.
void add_finding(Kind kind, const std::string& text);

/// False where no_double.cpp stands in for the double: on a card.
bool is_double();

/// Number of different findings of `kind`.
std::size_t findings(Kind kind);
/// Number of different findings.
std::size_t all_findings();
/// For tests that plant faults.
void forget_findings();

/// Why the host waited for the device.
enum class Wait { item, to_host, to_device, shape, stream, event, device };

/// Counts one wait of the host, during which the device runs dry, under `operation` and the caller's stack.
void count_wait(Wait kind, const std::string& operation);

/// Number of waits that were counted.
std::size_t waits();

/// What one call of an operator moves in device memory and computes in matrix products.
struct Cost {
  double bytes = 0, flops = 0;
};
/// Counts one call of `operation` for the report's table of operators.
void count_operation(const std::string& operation, Cost cost);

/// Writes the report. Called by itself at the end of the process.
void write_report();

/// Writes "    LIBRARY +0xOFFSET" per frame of the caller's stack to a file descriptor.
void write_own_stack(int descriptor);

}  // namespace cuda_double
