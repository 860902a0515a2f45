#pragma once
/// \file
/// The validated slots of an optimizer, their positions in one flat state buffer, and a single parallel pass over the
/// blocks of all slots.

#include <tessera/kernels/cpu/eight_bit.h>
#include <tessera/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::optim {

/// Part of one slot: elements [offset, offset + numel) of its piece, its gradient and its segments of the state.
struct Block {
  std::size_t slot;
  std::int64_t offset, numel;
};

/// One kind of state.
struct StateKind {
  std::string name;  ///< "exp_avg"
  /// Returns the state's shape for a slot; nullopt: the slot does not have this state. Empty function: one element per
  /// element of the slot.
  std::function<std::optional<std::vector<std::int64_t>>(const Slot&)> shape = {};
  bool replicated = false;  ///< see Optimizer::is_replicated()
  bool negative = true;     ///< whether values can be negative, which selects the eight-bit code
};

/// The shape of the whole parameter. For a zero-dimensional parameter's empty piece: {0}.
std::vector<std::int64_t> whole_shape(const Slot& slot);

class FlatState {
 public:
  /// States are zero, in the parameters' dtype, bfloat16 or eight bits. Throws InputError if a parameter is not
  /// contiguous float32 or float64 (with bf16_state: float32; with eight_bit_state: float32 on the CPU), differs from
  /// the others in dtype or device, or is not the specified piece.
  FlatState(std::vector<Slot> slots, std::vector<StateKind> kinds, const CommonOptions& common);

  const std::vector<Slot>& slots() const { return slots_; }
  void set_learning_rate_scales(const std::vector<double>& scales);  ///< one per slot
  std::size_t kind_count() const { return kinds_.size(); }
  /// Slot i's part of state kind k; aliases the flat buffer. Undefined if the slot does not have this state, or stores
  /// it in eight bits.
  const at::Tensor& view(std::size_t k, std::size_t i) const { return views_[k][i]; }
  /// ("exp_avg.NAME", view) of every state tensor and slot.
  std::vector<std::pair<std::string, at::Tensor>> named() const;
  bool is_replicated(const std::string& state_name) const;
  /// Whether the states of slot i are stored in eight bits.
  bool is_eight_bit(std::size_t i) const { return eight_bit_.at(i); }
  /// The codes and scales of these states from element `offset`, a multiple of 64.
  kernels::EightBits eight_bits(std::size_t k, std::size_t i, std::int64_t offset = 0) const;
  /// The states of all these slots; they refer to this object.
  std::vector<EncodedState> encoded() const;

  /// The gradients of this step, one per slot, contiguous; undefined ones stay undefined. Throws Error if a gradient's
  /// dtype, device or shape differs from its parameter's.
  std::vector<at::Tensor> gradients() const;
  /// True if the CPU kernels apply (float32 on the CPU).
  bool has_kernels() const { return has_kernels_; }
  /// Calls update(block) for blocks that together cover every slot with a gradient, in parallel. Blocks begin at
  /// multiples of 64 elements.
  void for_each_block(const std::vector<at::Tensor>& gradients, const std::function<void(const Block&)>& update) const;

 private:
  void make_eight_bits(const CommonOptions& common);

  std::vector<Slot> slots_;
  std::vector<StateKind> kinds_;
  at::Tensor flat_;
  std::vector<std::vector<at::Tensor>> views_;  ///< [kinds][slots]
  std::vector<bool> eight_bit_;                 ///< [slots]
  at::Tensor flat_codes_, flat_scales_;
  std::vector<std::vector<at::Tensor>> codes_, scales_;  ///< [kinds][slots]
  bool has_kernels_ = false;
};

}  // namespace tessera::optim
