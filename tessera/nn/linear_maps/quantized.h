#pragma once
/// \file
/// Linear maps whose weight is frozen and kept in four or eight bits (Dettmers et al. 2023, "QLoRA"; Dettmers et al.
/// 2022, "LLM.int8()"; kernels/cpu/quantize.h has bitsandbytes' formats). A product widens the weight first, for as
/// long as it takes. Eight bits are those of LLM.int8()'s weights alone: inputs are not rounded, so there are no
/// outliers to be taken apart.

#include <ATen/core/Tensor.h>

#include <tessera/config/sections/words.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace tessera::nn {

/// How weights are kept, and what they are widened to.
struct QuantizedForm {
  int bits = 4;                     ///< 4: blocks of 64 along the flat weight; 8: rows of int8
  QuantType type = QuantType::nf4;  ///< four bits: which numbers
  bool double_quant = false;        ///< four bits: the blocks' absmax are kept in eight bits around their mean
  std::optional<at::ScalarType> compute = {};  ///< products are of this type; nothing: as autocast says
};

/// A weight [out, in] in few bits, on the CPU.
struct QuantizedWeight {
  QuantizedForm form;            ///< how
  std::int64_t out = 0, in = 0;  ///< its sides
  at::Tensor codes = {};         ///< uint8 [ceil(out in / 2)], or int8 [out, in]
  at::Tensor absmax = {};  ///< fp32 [ceil(out in / 64)], or [out]; with double_quant that of its own blocks of 256
  at::Tensor absmax_codes = {};  ///< double_quant: uint8 [ceil(out in / 64)], else undefined
  float absmax_mean = 0;         ///< double_quant: what the absmax were taken relative to
  std::int64_t bytes() const;    ///< what these tensors take
};

/// The weight, fp32 [out, in] on the CPU, in few bits: the same for any number of threads. What is not finite shows as
/// an absmax that is not.
QuantizedWeight quantize(const at::Tensor& weight, const QuantizedForm& form);
/// Whether every value was finite.
bool is_finite(const QuantizedWeight& weight);
/// fp32 [out, in].
at::Tensor dequantize(const QuantizedWeight& weight);

/// x W^T + b (linear.h), x [..., in] on the CPU, bias [out] or undefined: the products, and so the bits, of nn::linear
/// with dequantize(weight). Gradients go to x and to the bias; backward widens the weight again. Returns the type that
/// nn::linear would: fp32 for fp32.
at::Tensor quantized_linear(const at::Tensor& x, const std::shared_ptr<const QuantizedWeight>& weight,
                            const at::Tensor& bias);

}  // namespace tessera::nn
