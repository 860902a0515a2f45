#pragma once
/// \file
/// Executes a schedule (schedule.h) on real memory over a Link. Torch-free.
///
/// Long tensors are cut into segments that pass through the schedule as a pipeline: one segment is combined while the
/// next is in transit. Messages are posted ahead, and received summands arrive in staging buffers small enough to stay
/// in the cache. bf16 and fp16 are combined in fp32 and rounded once: partial sums are sent as fp32, everything else in
/// its own type (direct: 2 S (R-1)/R bytes in all, as for any type).

#include <tessera/kernels/cpu/reduce.h>
#include <tessera/wire/arithmetic.h>
#include <tessera/wire/ring/schedule.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tessera::wire::ring {

/// Messages between this rank and its peers. Messages of one pair and direction arrive in the order in which they were
/// posted; a receive's size equals the matching send's.
class Link {
 public:
  /// A posted message. Must not be destroyed before wait() has returned or thrown.
  class Message {
   public:
    virtual ~Message() = default;
    /// Blocks until the memory may be reused. Throws any std::exception if the message failed.
    virtual void wait() = 0;
  };
  virtual ~Link() = default;
  virtual std::unique_ptr<Message> send(int peer, const void* data, std::size_t bytes) = 0;
  virtual std::unique_ptr<Message> recv(int peer, void* data, std::size_t bytes) = 0;
};

/// Buffers kept between calls, which avoids page faults.
class Scratch {
 public:
  std::byte* staging(std::size_t bytes) { return grow(staging_, bytes); }
  std::byte* work(std::size_t bytes) { return grow(work_, bytes); }

 private:
  struct Buffer {
    std::unique_ptr<std::byte[]> data;
    std::size_t bytes = 0;
  };
  static std::byte* grow(Buffer& buffer, std::size_t bytes);
  Buffer staging_, work_;
};

struct Job {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  int rank = 0, size = 1;
  kernels::Number number = kernels::Number::fp32;  ///< all_gather: uint8, n counts bytes
  kernels::Fold fold = kernels::Fold::sum;
  /// Used instead of kernels::reduce if set (wire/arithmetic.h); `number` is then uint8, and n counts bytes.
  Arithmetic::Loop loop = nullptr;
  /// all_reduce: input and output are the same [n]. reduce_scatter: input [size * n] (unchanged), output [n].
  /// all_gather: input [n], output [size * n]; input may be its own block of output. Aligned to the element type.
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t n = 0;
  std::int64_t chunk_bytes = std::int64_t{1} << 19;  ///< approximate message size; equal on all ranks
  int window = 4;                                    ///< messages posted ahead; equal on all ranks
};

/// Blocks until this rank's part is done and its memory may be reused. Rethrows the link's exceptions, after waiting
/// for all posted messages, so that nothing is written to the memory afterwards.
void run(const Job& job, Link& link, Scratch& scratch);

}  // namespace tessera::wire::ring
