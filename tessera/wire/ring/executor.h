#pragma once
/// \file
/// Carries out a schedule (schedule.h) on real memory over a Link. Torch-free.
///
/// Long tensors are cut into segments that pass through the schedule one behind the other, so that a segment is
/// combined while the next one is on its way; messages are posted some places ahead, received sums land in staging that
/// stays in the cache. bf16 and fp16 are combined in fp32 and rounded once: what was combined before travels as fp32,
/// everything else in its own type (direct: 2 S (R-1)/R bytes in all, as for any type).

#include <tessera/kernels/cpu/reduce.h>
#include <tessera/wire/arithmetic.h>
#include <tessera/wire/ring/schedule.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tessera::wire::ring {

/// Messages between this rank and its peers. Those of one pair and direction arrive in the order in which they were
/// posted; a receive is posted with the size of the matching send.
class Link {
 public:
  /// A posted message. May be destroyed only after wait() returned or threw.
  class Message {
   public:
    virtual ~Message() = default;
    /// Blocks until the memory may be used again. Throws any std::exception when the message failed.
    virtual void wait() = 0;
  };
  virtual ~Link() = default;
  virtual std::unique_ptr<Message> send(int peer, const void* data, std::size_t bytes) = 0;
  virtual std::unique_ptr<Message> recv(int peer, void* data, std::size_t bytes) = 0;
};

/// Memory that is kept from call to call, for its pages' sake.
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
  /// Combines instead of kernels::reduce (wire/arithmetic.h); `number` is uint8 then, and n counts bytes.
  Arithmetic::Loop loop = nullptr;
  /// all_reduce: [n], the same memory. reduce_scatter: input [size * n] (kept), output [n]. all_gather: input [n],
  /// output [size * n]; input may be its own block of output. Aligned to the number.
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t n = 0;
  std::int64_t chunk_bytes = std::int64_t{1} << 19;  ///< about the size of a message; equal on all ranks
  int window = 4;                                    ///< messages posted ahead; equal on all ranks
};

/// Blocks until this rank's part is done and its memory free. Throws what the link throws; messages that were posted
/// are waited for before, so that no memory is written afterwards.
void run(const Job& job, Link& link, Scratch& scratch);

}  // namespace tessera::wire::ring
