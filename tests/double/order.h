#pragma once
/// \file
/// The order of work on the double's devices: current device and stream of a thread, events, and a vector clock per
/// stream. Kernels run when they are enqueued; whether a real device could have run them in another order is decided by
/// the clocks alone. Every function may be called from any thread.
///
/// The rule (happens-before, Lamport 1978; vector clocks, Fidge 1988 and Mattern 1989): an access at tick t of stream s
/// precedes a kernel of stream r if the clock of r has s at t or later. An event carries the clock of the stream that
/// recorded it; a stream that waits for the event takes the maximum of both clocks. The host has one clock for all of
/// its threads, so a wait of one thread counts for every thread: faults may be missed by that, none is invented.

/// Environment: DOUBLE_EVENT_MS=n: every wait of the host for an event that is not over takes n ms, as on a device that
/// is slower than the host.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tests/double/findings.h>

namespace cuda_double {

/// Number of devices: DOUBLE_DEVICES of the environment, 2 without it, at most 8.
int device_count();

int current_device();
void set_device(int device);

std::int64_t current_stream(int device);
/// Makes `stream` current on `device`; returns the stream that was.
std::int64_t exchange_stream(int device, std::int64_t stream);
std::int64_t new_stream();

/// One access of a kernel: bytes [begin, begin + bytes) of device memory.
struct Access {
  const void* begin;
  std::size_t bytes;
  bool write;
  std::size_t moved = 0;  ///< bytes among them that the kernel reads or writes; 0: all
};

/// The bytes that they move together.
double bytes_of(const std::vector<Access>& accesses);

/// A kernel's start on a stream. Adds a finding for every access that is not ordered behind what it depends on, and for
/// every read of bytes that nothing wrote. `operation` must live as long as the process (kept()).
void enqueue(const char* operation, int device, std::int64_t stream, const std::vector<Access>& accesses);

/// The history of the accesses to an allocation begins; `stream` owns the memory, as with CUDA's caching allocator.
void begin_block(char* begin, std::size_t bytes, int device, std::int64_t stream);
/// The allocation is given back: adds a finding if another stream may still use it.
void end_block(char* begin);
/// "byte 8 of 4096, last written by aten::add_", for a pointer into device memory.
std::string describe_block(const void* pointer);

/// Tensor::record_stream: `stream` uses the allocation, which then may be freed earlier.
void record_stream(const void* pointer, int device, std::int64_t stream);

/// Records the stream's state in `event`, or in a new event for nullptr; returns the event.
void* event_record(void* event, int device, std::int64_t stream);
void event_destroy(void* event);
/// What the stream is given from now on is ordered behind the event.
void event_block(void* event, int device, std::int64_t stream);
/// Whether the event is over. A device is slower than the host that asks: the first answer is no unless the host has
/// waited for that work already, the second one is yes, and what the host enqueues then is ordered behind the event.
bool event_query(void* event);
double event_milliseconds(void* event);

/// The host waits for everything that the stream was given. Counted as a wait.
void host_waits(Wait kind, const std::string& operation, int device, std::int64_t stream);
/// The same for an event. Counted only if the stream has fewer than 50 kernels to do behind it: else the device goes on
/// meanwhile.
void host_waits_event(void* event);
void host_waits_device(int device);

/// The same text with the life of the process.
const char* kept(const std::string& text);

}  // namespace cuda_double
