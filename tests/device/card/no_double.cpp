// Stubs for device_check on a real device, where no double finds faults or counts waits. Memory figures are those of
// CUDA's allocator.
#include <c10/core/CachingDeviceAllocator.h>

#include <tests/double/findings.h>
#include <tests/double/memory.h>

namespace cuda_double {
namespace {

c10::CachingDeviceAllocator::Stat allocated(int device) {
  const auto stats = c10::getDeviceAllocator(c10::kCUDA)->getDeviceStats(static_cast<c10::DeviceIndex>(device));
  return stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

}  // namespace

bool is_double() { return false; }
std::size_t findings(Kind) { return 0; }
std::size_t all_findings() { return 0; }
std::size_t waits() { return 0; }
void write_report() {}

std::size_t bytes_in_use(int device) { return static_cast<std::size_t>(allocated(device).current); }
std::size_t bytes_peak(int device) { return static_cast<std::size_t>(allocated(device).peak); }
void reset_peak(int device) {
  c10::getDeviceAllocator(c10::kCUDA)->resetPeakStats(static_cast<c10::DeviceIndex>(device));
}

}  // namespace cuda_double
