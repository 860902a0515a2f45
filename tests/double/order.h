#pragma once
/// \file
/// The order of work on the double's devices: current device and stream of a thread, events, and a vector clock per
/// stream. Kernels run when they are enqueued; the clocks alone decide whether a real device could have run them in a
/// different order. Every function may be called from any thread.
///
/// The rule (happens-before, Lamport 1978; vector clocks, Fidge 1988 and Mattern 1989): an access at tick t of stream s
/// precedes a kernel of stream r if the clock of r has s at t or later. An event carries the clock of the stream that
/// recorded it; a stream that waits for the event takes the maximum of both clocks. The host has one clock for all of
/// its threads, so a wait of one thread counts for every thread: this can hide faults, but never reports a false one.

/// Environment: DOUBLE_EVENT_MS=n: every host wait for an unfinished event takes n ms, as on a device that is slower
/// than the host.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tests/double/findings.h>

namespace cuda_double {

/// Number of devices: DOUBLE_DEVICES from the environment, by default 2, at most 8.
int device_count();

int current_device();
void set_device(int device);

std::int64_t current_stream(int device);
/// Makes `stream` current on `device`; returns the previous stream.
std::int64_t exchange_stream(int device, std::int64_t stream);
std::int64_t new_stream();

/// One access of a kernel: bytes [begin, begin + bytes) of device memory.
struct Access {
  const void* begin;
  std::size_t bytes;
  bool write;
  std::size_t moved = 0;  ///< bytes of these that the kernel reads or writes; 0: all
};

/// The total bytes that they move.
double bytes_of(const std::vector<Access>& accesses);

/// Starts a kernel on a stream. Adds a finding for every access that is not ordered after its dependencies, and for
/// every read of bytes that were never written. `operation` must live as long as the process (kept()).
void enqueue(const char* operation, int device, std::int64_t stream, const std::vector<Access>& accesses);

/// Starts the access history of an allocation; `stream` owns the memory, as with CUDA's caching allocator.
void begin_block(char* begin, std::size_t bytes, int device, std::int64_t stream);
/// Ends an allocation: adds a finding if another stream may still use it.
void end_block(char* begin);
/// "byte 8 of 4096, last written by aten::add_", for a pointer into device memory.
std::string describe_block(const void* pointer);

/// Tensor::record_stream: `stream` uses the allocation, which may be freed before that use has finished.
void record_stream(const void* pointer, int device, std::int64_t stream);

/// Records the stream's state in `event`, or in a new event for nullptr; returns the event.
void* event_record(void* event, int device, std::int64_t stream);
void event_destroy(void* event);
/// Makes all work enqueued on the stream after this call wait for the event.
void event_block(void* event, int device, std::int64_t stream);
/// Whether the event has finished. A device is slower than the host that queries it: the first answer is false unless
/// the host has already waited for that work; the second is true, and whatever the host enqueues then is ordered after
/// the event.
bool event_query(void* event);
double event_milliseconds(void* event);

/// The host waits for all work enqueued on the stream. Counted as a wait.
void host_waits(Wait kind, const std::string& operation, int device, std::int64_t stream);
/// The same for an event. Counted only if fewer than 50 kernels are enqueued on the stream after it: otherwise the
/// device stays busy during the wait.
void host_waits_event(void* event);
void host_waits_device(int device);

/// A copy of the text that lives as long as the process.
const char* kept(const std::string& text);

}  // namespace cuda_double
