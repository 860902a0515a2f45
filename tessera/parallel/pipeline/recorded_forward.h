#pragma once
/// \file
/// Internal to observed_chain.cpp: records the operators of one forward pass.

#include <torch/nn/module.h>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera::parallel {

/// One result of an operator.
struct RecordedResult {
  bool defined = false;
  std::size_t value = 0;  ///< index of the memory that it uses, equal for all tensors that share it
  int argument = -1;      ///< index of the argument that it equals or (`is_view`) is a view of; -1: new
  bool is_view = false;
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
  at::ScalarType type = at::kFloat;
};

struct RecordedOperator {
  std::string name;
  bool everywhere = false;                      ///< does not depend on any parameter
  bool true_always = false;                     ///< compares a tensor with itself: returns true
  std::vector<std::size_t> reads, writes;       ///< values
  std::vector<const c10::TensorImpl*> touches;  ///< parameters and buffers of the module
  std::vector<RecordedResult> results;
};

struct RecordedForward {
  std::vector<RecordedOperator> operators;
  std::vector<bool> depends;           ///< by value: whether it depends on a parameter
  std::vector<std::size_t> made_by;    ///< by value: the operator that first returned it
  std::vector<std::size_t> last_used;  ///< by value: the last operator that reads or writes it; operators.size() for
                                       ///< the output of the forward
};

/// `own`: parameters and buffers, whose memory may be absent. Throws InputError (observed_chain.h).
RecordedForward record_forward(const std::function<at::Tensor(const at::Tensor&)>& forward, const at::Tensor& sample,
                               const std::vector<at::Tensor>& own);

}  // namespace tessera::parallel
