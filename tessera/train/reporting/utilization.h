#pragma once
/// \file
/// How well a run uses the machine: memory by kind, and what the processor could do at best.

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace torch::nn {
class Module;
}

namespace tessera::train {

struct SavedModel;

/// What memory holds. process: resident before the model was made (program, libraries); the four next: bytes of
/// tensors, parameters and gradients being those that stay on this rank, buffers what is gathered or on its way to
/// others; activations: the rest of what tensors have asked for at most (activations, temporary buffers, data);
/// reserve: the rest of the peak (what the allocator keeps or rounds, what libraries keep, pages of peers).
inline constexpr std::size_t memory_kind_count = 7;
inline constexpr std::string_view memory_kind_names[memory_kind_count] = {
    "process", "parameters", "gradients", "optimizer", "buffers", "activations", "reserve"};
/// Bytes by kind; they add up to the peak.
using MemoryByKind = std::array<std::int64_t, memory_kind_count>;

/// Sizes of this process now. `trained`: its parts that are trained, and its optimizer's states. `process_bytes`:
/// resident before the model was made; `peak_bytes`: the peak so far; `allocated_peak`: the most that tensors have
/// asked for so far (base/allocated.h; of it what lies in files is no part). Should the parts exceed the peak (weights
/// that are mapped and were never touched), the later ones are cut, so that the sum is the peak.
MemoryByKind memory_by_kind(const torch::nn::Module& model, const SavedModel& trained, std::int64_t process_bytes,
                            std::int64_t peak_bytes, std::int64_t allocated_peak);
/// What tensors have asked for: all but process and reserve.
std::int64_t allocated_bytes(const MemoryByKind& kinds);

/// FLOP/s of this process in a matrix product as the model multiplies (fp32, or bf16), with its threads: of 768 x 768
/// matrices, or of 384 x 384, which are enough for one or two threads. After one to warm up, the best of two to ten, as
/// many as fit into 0.01 s. Call it on all ranks at once, so that processes that share cores share them here, too. 0
/// for devices other than the CPU, where so short a product says nothing.
double measured_peak_flops(c10::Device device, bool bf16);

}  // namespace tessera::train
