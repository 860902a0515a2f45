#pragma once
/// \file
/// Memory of the double's devices. A device is a range of addresses that the host may not touch (PROT_NONE); kernels
/// work on its mirror, ordinary memory at a constant distance. A host access ends the process with exit code 77 after a
/// message that names the allocation, its last writer and the stack. Fresh memory is filled with 0xFF: NaN in every
/// floating-point type. Every function may be called from any thread.

#include <cstddef>
#include <cstdint>

namespace cuda_double {

/// Exit code of a process whose host code touched device memory.
inline constexpr int host_access_exit = 77;

/// Allocates `bytes` bytes of device memory that belong to `stream`; nullptr for 0 bytes.
void* allocate(std::size_t bytes, int device, std::int64_t stream);
void release(void* pointer);

bool is_device(const void* pointer);
/// Index of the device whose range contains `pointer`; only for device pointers.
int device_of(const void* pointer);
/// The same byte in the mirror; throws for a host pointer.
void* mirror(const void* pointer);

std::size_t bytes_in_use(int device);
std::size_t bytes_peak(int device);
void reset_peak(int device);

}  // namespace cuda_double
