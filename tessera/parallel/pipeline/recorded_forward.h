#pragma once
/// \file
/// Internal to observed_chain.cpp: the operators of one forward pass.

#include <torch/nn/module.h>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::parallel {

/// What an operator returned.
struct RecordedResult {
  bool defined = false;
  std::size_t value = 0;  ///< whose memory it has: an index, the same for all that share it
  int argument = -1;      ///< not new: it is this argument, or (`is_view`) lies in its memory
  bool is_view = false;
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
  at::ScalarType type = at::kFloat;
};

struct RecordedOperator {
  std::string name;
  bool everywhere = false;                      ///< depends on no parameter
  bool true_always = false;                     ///< compares a tensor with itself: returns true
  std::vector<std::size_t> reads, writes;       ///< values
  std::vector<const c10::TensorImpl*> touches;  ///< parameters and buffers of the module
  std::vector<RecordedResult> results;
};

struct RecordedForward {
  std::vector<RecordedOperator> operators;
  std::vector<bool> depends;           ///< by value: on a parameter
  std::vector<std::size_t> made_by;    ///< by value: the operator that returned it first
  std::vector<std::size_t> last_used;  ///< by value: the last operator that reads or writes it; operators.size() for
                                       ///< the output of the forward
};

/// `own`: parameters and buffers whose memory may be elsewhere. Throws InputError (observed_chain.h).
RecordedForward record_forward(const std::function<at::Tensor(const at::Tensor&)>& forward, const at::Tensor& sample,
                               const std::vector<at::Tensor>& own);

}  // namespace tessera::parallel
