#pragma once
/// \file
/// A GGUF file as a Hugging Face folder: config.json, generation_config.json, model.safetensors, and, for byte-level
/// BPE vocabularies, tokenizer.json and tokenizer_config.json.

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
  bool tokenizer = true;     ///< false: no tokenizer files, whatever the file has
  int threads = 0;           ///< 0: as many as there are processors
  /// Called before each tensor with the bytes written so far and in all; may throw to stop.
  std::function<void(std::uint64_t done, std::uint64_t of)> progress;
};

/// Everything that can be wrong with the file has been found once this exists; nothing has been written.
struct GgufToHf {
  GgufModel model;
  std::vector<HfTensor> tensors;
  GgufTokenizer tokenizer;  ///< empty texts when options.tokenizer is false
  std::uint64_t parameters = 0;
  std::uint64_t weight_bytes = 0;
};
GgufToHf plan_gguf_to_hf(const GgufFile& file, const GgufToHfOptions& options);

/// Writes the files into the existing folder, weights last; one tensor is in memory at a time. Throws Error when
/// writing fails, InputError when a weight does not fit dtype f16.
void write_gguf_to_hf(const GgufFile& file, const GgufToHf& plan, const std::string& folder,
                      const GgufToHfOptions& options);

/// One tensor's values in Hugging Face's order, as `dtype` (f32, f16 or bf16); `out` has exactly their bytes.
void read_gguf_tensor(const GgufFile& file, const HfTensor& tensor, DType dtype, std::span<std::byte> out, int threads);

}  // namespace tessera::format
