#pragma once
/// \file
/// The building blocks of models: modules with parameters under Hugging Face's names. Parameters are created
/// uninitialized.

#include <torch/nn/module.h>

#include <tessera/nn/dropout.h>
#include <tessera/nn/layer_norm.h>
#include <tessera/nn/linear.h>
#include <tessera/nn/linear_maps/fake_quantized.h>
#include <tessera/nn/linear_maps/fp8.h>
#include <tessera/nn/linear_maps/quantized.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::models {

/// A table: weight [rows, columns]; a head may have a bias [rows] (Phi).
struct Table : torch::nn::Module {
  Table(std::int64_t rows, std::int64_t columns, bool with_bias = false);
  /// The table for lookups: the weight, or the weight rounded to few bits.
  at::Tensor rows() const { return rounding && *rounding ? nn::fake_quantize(weight, **rounding) : weight; }

  at::Tensor weight, bias;
  /// How rows() is rounded, changed between steps by the object that shares it; null: never.
  std::shared_ptr<const std::optional<nn::FakeQuantization>> rounding;
};

/// A linear map, optionally with a low-rank adapter (LoRA, Hu et al. 2021):
/// y = x W + b + (alpha / r) dropout(x) A^T B^T.
struct Linear : torch::nn::Module {
  Linear(std::int64_t in, std::int64_t out, bool with_bias, nn::WeightLayout layout = nn::WeightLayout::out_in);
  /// x [B, t, in] -> [B, t, out]; `place`: position of x, for the adapter's dropout.
  at::Tensor forward(const at::Tensor& x, const nn::RandomPlace& place);
  /// Like forward(), with the result split into three parts by columns (nn::linear_apart); nullopt if the map has
  /// additions or there is no kernel for it.
  std::optional<std::vector<at::Tensor>> forward_apart(const at::Tensor& x) const;
  /// Like forward(), but without the bias, which the caller adds in a later pass.
  at::Tensor project(const at::Tensor& x, const nn::RandomPlace& place);
  /// Registers lora_A [r, in] and lora_B [out, r], uninitialized; `name` is the module's name, the key of its dropout.
  /// Throws Error if there is already an adapter.
  void add_lora(const std::string& name, std::int64_t r, double alpha, double dropout);
  std::int64_t in_features() const, out_features() const;
  /// Replaces the weight by `kept`, the weight [out, in] in few bits; it is no longer a parameter, and its memory is
  /// freed.
  void keep_quantized(std::shared_ptr<const nn::QuantizedWeight> kept);
  /// Turns a quantized weight back into a frozen parameter, with the values that the products used.
  void make_whole();

  nn::WeightLayout layout;
  at::Tensor weight, bias;                ///< weight [out, in], or [in, out] (GPT-2's Conv1D); bias [out] or undefined
  std::shared_ptr<Table> lora_A, lora_B;  ///< null: no adapter
  double lora_scale = 0, lora_dropout = 0;
  std::shared_ptr<const nn::Fp8Map> fp8;  ///< fp8 rounding of its products; null: none
  /// The quantized weight; null: not quantized. If set, `weight` has a shape but no memory (on the meta device).
  std::shared_ptr<const nn::QuantizedWeight> quantized;
  /// Selects the operands that are rounded to few bits; changed between steps by the object that shares it; null: none.
  std::shared_ptr<const nn::QuantizedOperands> rounding;

 private:
  at::Tensor product(const at::Tensor& x, const at::Tensor& added) const;
  at::Tensor adapted(const at::Tensor& x, const nn::RandomPlace& place) const;

  std::uint64_t lora_number_ = 0;  // key of its dropout
};

/// GPT-2's linear map.
struct Conv1D : Linear {
  Conv1D(std::int64_t in, std::int64_t out) : Linear(in, out, /*with_bias=*/true, nn::WeightLayout::in_out) {}
};

/// Layer normalization: weight [C], bias [C].
struct LayerNorm : torch::nn::Module {
  LayerNorm(std::int64_t size, double eps);
  at::Tensor weight, bias;
  double eps;
};

/// A CPU generator keyed by (seed, name): its numbers do not depend on order, threads or ranks.
at::Generator generator_by_name(std::uint64_t seed, const std::string& name);
/// Fills with N(0, std) from generator_by_name.
void normal_by_name(at::Tensor& tensor, double std, std::uint64_t seed, const std::string& name);

}  // namespace tessera::models
