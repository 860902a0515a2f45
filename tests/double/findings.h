#pragma once
/// \file
/// Faults that the double of the CUDA device found and events that it counted, with their call stacks, and the report
/// of both. This file does not depend on tensors or memory. Every function may be called from any thread.
///
/// Environment: DOUBLE_REPORT=FILE writes FILE.rank<RANK>.<pid> at the end of the process (call_sites.py reads it);
/// without it findings go to stderr.

#include <cstddef>
#include <string>

namespace cuda_double {

/// A kind of fault in the code that uses the device.
enum class Kind {
  race,           ///< an access that is not ordered after an earlier one of another stream
  uninitialized,  ///< a read of bytes that were never written
  freed_in_use,   ///< memory freed while another stream may still use it
  mixed_devices,  ///< one operator with tensors of two devices, or a host pointer in a kernel
  wrong_device,   ///< a kernel launched while the current device was not that of its memory
  no_kernel,      ///< an operator that the double cannot compute: a gap of the double itself
  host_access,    ///< the host touched device memory
  not_here,       ///< an operator on a tensor whose storage was released
};

/// Adds a finding with the caller's stack. Identical texts are stored once and counted.
void add_finding(Kind kind, const std::string& text);

/// False if no_double.cpp replaces the double, on a real card.
bool is_double();

/// Number of different findings of `kind`.
std::size_t findings(Kind kind);
/// Number of different findings.
std::size_t all_findings();
/// For tests that plant faults.
void forget_findings();

/// Why the host waited for the device.
enum class Wait { item, to_host, to_device, shape, stream, event, device };

/// Counts one host wait, during which the device runs dry, under `operation` and the caller's stack.
void count_wait(Wait kind, const std::string& operation);

/// Number of waits counted so far.
std::size_t waits();

/// Bytes that one operator call moves in device memory, and FLOP of its matrix products.
struct Cost {
  double bytes = 0, flops = 0;
};
/// Counts one call of `operation` for the report's table of operators.
void count_operation(const std::string& operation, Cost cost);

/// Writes the report. Called automatically at the end of the process.
void write_report();

/// Writes "    LIBRARY +0xOFFSET" per frame of the caller's stack to a file descriptor.
void write_own_stack(int descriptor);

}  // namespace cuda_double
