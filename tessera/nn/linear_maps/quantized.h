#pragma once
/// \file
/// Linear maps with frozen weights in four or eight bits (Dettmers et al. 2023, "QLoRA"; Dettmers et al. 2022,
/// "LLM.int8()"; kernels/cpu/quantize.h has bitsandbytes' formats). A product first widens the weight, temporarily.
/// Eight bits follow LLM.int8() for weights only: inputs are not rounded, so there are no outliers to separate.

#include <ATen/core/Tensor.h>

#include <tessera/config/sections/words.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace tessera::nn {

/// How weights are stored, and the type they are widened to.
struct QuantizedForm {
  int bits = 4;                     ///< 4: blocks of 64 along the flat weight; 8: rows of int8
  QuantType type = QuantType::nf4;  ///< four bits: the set of representable values
  bool double_quant = false;        ///< four bits: the blocks' absmax are stored in eight bits around their mean
  std::optional<at::ScalarType> compute = {};  ///< type of the products; nullopt: by autocast
};

/// A weight [out, in] in few bits, on the CPU.
struct QuantizedWeight {
  QuantizedForm form;            ///< format
  std::int64_t out = 0, in = 0;  ///< dimensions
  at::Tensor codes = {};         ///< uint8 [ceil(out in / 2)], or int8 [out, in]
  at::Tensor absmax =
      {};  ///< fp32 [ceil(out in / 64)], or [out]; with double_quant, absmax of blocks of 256 absmax values
  at::Tensor absmax_codes = {};  ///< double_quant: uint8 [ceil(out in / 64)], else undefined
  float absmax_mean = 0;         ///< double_quant: mean that was subtracted from the absmax
  std::int64_t bytes() const;    ///< bytes in these tensors
};

/// Quantizes the weight, fp32 [out, in] on the CPU; the result does not depend on the number of threads. A non-finite
/// value gives a non-finite absmax.
QuantizedWeight quantize(const at::Tensor& weight, const QuantizedForm& form);
/// Whether every value was finite.
bool is_finite(const QuantizedWeight& weight);
/// fp32 [out, in].
at::Tensor dequantize(const QuantizedWeight& weight);

/// x W^T + b (linear.h), x [..., in] on the CPU, bias [out] or undefined: bitwise the products of nn::linear with
/// dequantize(weight). Gradients go to x and to the bias; backward widens the weight again. Returns the type that
/// nn::linear would: fp32 for fp32.
at::Tensor quantized_linear(const at::Tensor& x, const std::shared_ptr<const QuantizedWeight>& weight,
                            const at::Tensor& bias);

}  // namespace tessera::nn
