#pragma once
/// \file
/// Converts a GGUF file to a Hugging Face folder: config.json, generation_config.json, model.safetensors, and, for
/// byte-level BPE vocabularies, tokenizer.json and tokenizer_config.json.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <tessera/format/gguf/gguf_model.h>
#include <tessera/format/gguf/gguf_tokenizer.h>
#include <tessera/format/safetensors/safetensors.h>

namespace tessera::format {

struct GgufToHfOptions {
  DType dtype = DType::f32;  ///< dtype of all weights: f32, f16 or bf16
  bool tokenizer = true;     ///< false: write no tokenizer files
  int threads = 0;           ///< 0: one per processor
  /// Called before each tensor with the bytes written so far and the total; may throw to stop.
  std::function<void(std::uint64_t done, std::uint64_t of)> progress;
};

/// The result of checking the whole file before anything is written. After this the conversion can fail only because of
/// I/O errors or values beyond f16.
struct GgufToHf {
  GgufModel model;
  std::vector<HfTensor> tensors;
  GgufTokenizer tokenizer;  ///< its texts are empty if options.tokenizer is false
  std::uint64_t parameters = 0;
  std::uint64_t weight_bytes = 0;
};
GgufToHf plan_gguf_to_hf(const GgufFile& file, const GgufToHfOptions& options);

/// Writes the files into the existing folder, weights last; one tensor is in memory at a time. Throws Error when
/// writing fails, and InputError when a weight does not fit dtype f16.
void write_gguf_to_hf(const GgufFile& file, const GgufToHf& plan, const std::string& folder,
                      const GgufToHfOptions& options);

/// One tensor's values in Hugging Face's order, converted to `dtype` (f32, f16 or bf16); `out` must have exactly their
/// size.
void read_gguf_tensor(const GgufFile& file, const HfTensor& tensor, DType dtype, std::span<std::byte> out, int threads);

}  // namespace tessera::format
