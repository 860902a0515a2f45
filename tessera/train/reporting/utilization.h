#pragma once
/// \file
/// Measures how well a run uses the machine: memory by kind, and the processor's peak.

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace torch::nn {
class Module;
}

namespace tessera::train {

struct SavedModel;

/// Kinds of memory. process: resident before the model was created (program, libraries); the next four: bytes of
/// tensors, where parameters and gradients count only if they stay on this rank and buffers are gathered or in transit
/// to others; activations: the rest of the peak that tensors have requested (activations, temporary buffers, data);
/// reserve: the rest of the peak (kept or rounded up by the allocator, kept by libraries, pages of peers).
inline constexpr std::size_t memory_kind_count = 7;
inline constexpr std::string_view memory_kind_names[memory_kind_count] = {
    "process", "parameters", "gradients", "optimizer", "buffers", "activations", "reserve"};
/// Bytes by kind; they add up to the peak.
using MemoryByKind = std::array<std::int64_t, memory_kind_count>;

/// Current sizes in this process. `trained`: its trained parts and optimizer states. `process_bytes`: resident before
/// the model was created; `peak_bytes`: the peak so far; `allocated_peak`: the maximum that tensors have requested so
/// far (base/allocated.h; without tensors in files). If the parts exceed the peak (mapped weights that were never
/// touched), the later ones are reduced so that the sum is the peak.
MemoryByKind memory_by_kind(const torch::nn::Module& model, const SavedModel& trained, std::int64_t process_bytes,
                            std::int64_t peak_bytes, std::int64_t allocated_peak);
/// Bytes that tensors have requested: all kinds except process and reserve.
std::int64_t allocated_bytes(const MemoryByKind& kinds);

/// FLOP/s of this process in a matrix product of the model's kind (fp32 or bf16), with its threads: of 768 x 768
/// matrices, or of 384 x 384, which suffice for one or two threads. After one warm-up the best of two to ten, as many
/// as fit into 0.01 s. Call it on all ranks at once, so that processes that share cores also share them here. Returns 0
/// for devices other than the CPU, for which such a short product is not representative.
double measured_peak_flops(c10::Device device, bool bf16);

}  // namespace tessera::train
