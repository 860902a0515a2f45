#pragma once
/// \file
/// The checked slots of an optimizer, their places in one flat state buffer, and the one parallel
/// pass over blocks of all of them.

#include <tessera/layout/flat.h>
#include <tessera/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::optim {

/// Part of one slot: elements [offset, offset + numel) of its parameter, of its gradient and of its segments of the
/// state.
struct Block {
  std::size_t slot;
  std::int64_t offset, numel;
};

class FlatState {
 public:
  /// `names`: the state tensors, e.g. {"exp_avg", "exp_avg_sq"}; each is zero-filled, of the parameters' dtype.
  /// Throws InputError when a parameter is not contiguous float32 or float64, or not of one dtype and device with the
  /// others.
  FlatState(std::vector<Slot> slots, std::vector<std::string> names);

  const std::vector<Slot>& slots() const { return slots_; }
  /// Slot i's part of state tensor k, in the parameter's shape; aliases the flat buffer.
  const at::Tensor& view(std::size_t k, std::size_t i) const { return views_[k][i]; }
  /// ("exp_avg.NAME", view) of every state tensor and slot.
  std::vector<std::pair<std::string, at::Tensor>> named() const;

  /// The gradients of this step, one per slot, contiguous; undefined ones stay undefined. Throws Error when a
  /// gradient's dtype, device or shape is not its parameter's.
  std::vector<at::Tensor> gradients() const;
  /// True when the CPU kernels apply (float32 on the CPU).
  bool has_kernels() const { return has_kernels_; }
  /// Calls update(block) for blocks that together cover every slot with a gradient, in parallel.
  void for_each_block(const std::vector<at::Tensor>& gradients, const std::function<void(const Block&)>& update) const;

 private:
  std::vector<Slot> slots_;
  std::vector<std::string> names_;
  at::Tensor flat_;                             ///< [names * padded]
  std::vector<std::vector<at::Tensor>> views_;  ///< [names][slots]
  bool has_kernels_ = false;
};

}  // namespace tessera::optim
