#pragma once
/// \file
/// Builds the bytes of a GGUF file, valid or not, for tests.

#include <tessera/base/file.h>
#include <tessera/format/gguf/gguf.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tessera::testing {

template <class Number>
std::string little_endian(Number number) {
  std::string out(sizeof number, '\0');
  std::memcpy(out.data(), &number, sizeof number);
  return out;
}

inline std::string gguf_string(const std::string& text) {
  return little_endian(static_cast<std::uint64_t>(text.size())) + text;
}

class GgufBuilder {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;
  std::int64_t extra_tensors = 0, extra_entries = 0;  ///< declared but absent

  GgufBuilder& raw(const std::string& key, format::GgufType type, const std::string& bytes) {
    drop(key);
    entries_.emplace_back(key, gguf_string(key) + little_endian(static_cast<std::uint32_t>(type)) + bytes);
    return *this;
  }
  GgufBuilder& add(const std::string& key, std::uint32_t n) {
    return raw(key, format::GgufType::u32, little_endian(n));
  }
  GgufBuilder& add(const std::string& key, float x) { return raw(key, format::GgufType::f32, little_endian(x)); }
  GgufBuilder& add(const std::string& key, bool b) {
    return raw(key, format::GgufType::boolean, std::string(1, b ? '\1' : '\0'));
  }
  GgufBuilder& add(const std::string& key, const char* text) {
    return raw(key, format::GgufType::string, gguf_string(text));
  }
  GgufBuilder& add(const std::string& key, const std::vector<std::string>& texts) {
    std::string bytes = little_endian(std::uint32_t{8}) + little_endian(static_cast<std::uint64_t>(texts.size()));
    for (const std::string& text : texts) bytes += gguf_string(text);
    return raw(key, format::GgufType::array, bytes);
  }
  GgufBuilder& add(const std::string& key, const std::vector<std::int32_t>& numbers) {
    std::string bytes = little_endian(std::uint32_t{5}) + little_endian(static_cast<std::uint64_t>(numbers.size()));
    for (std::int32_t n : numbers) bytes += little_endian(n);
    return raw(key, format::GgufType::array, bytes);
  }
  /// Repeats a key, which the format forbids.
  GgufBuilder& repeat(std::size_t entry) {
    entries_.push_back(entries_.at(entry));
    return *this;
  }
  void drop(const std::string& key) {
    std::erase_if(entries_, [&](const auto& entry) { return entry.first == key; });
  }

  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> sizes;  ///< innermost first
    std::uint32_t type = 0;
    std::string data;
    std::int64_t shift = 0;  ///< added to the offset
  };
  std::vector<Tensor> tensors;

  /// Row-major shape; element i of the tensor is first + i.
  GgufBuilder& tensor(const std::string& name, const std::vector<std::int64_t>& shape, float first = 0) {
    Tensor t;
    t.name = name;
    std::int64_t elements = 1;
    for (std::int64_t n : shape) elements *= n;
    t.sizes.assign(shape.rbegin(), shape.rend());
    for (std::int64_t i = 0; i < elements; ++i) t.data += little_endian(first + static_cast<float>(i));
    tensors.push_back(std::move(t));
    return *this;
  }
  Tensor& at(const std::string& name) {
    for (Tensor& t : tensors)
      if (t.name == name) return t;
    throw std::out_of_range(name);
  }

  std::string build() const {
    std::string out = "GGUF" + little_endian(version) +
                      little_endian(static_cast<std::int64_t>(tensors.size()) + extra_tensors) +
                      little_endian(static_cast<std::int64_t>(entries_.size()) + extra_entries);
    for (const auto& [key, bytes] : entries_) out += bytes;
    std::string data;
    for (const Tensor& t : tensors) {
      data.resize((data.size() + alignment - 1) / alignment * alignment);
      out += gguf_string(t.name) + little_endian(static_cast<std::uint32_t>(t.sizes.size()));
      for (std::uint64_t n : t.sizes) out += little_endian(n);
      out += little_endian(t.type) + little_endian(static_cast<std::int64_t>(data.size()) + t.shift);
      data += t.data;
    }
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }

 private:
  std::vector<std::pair<std::string, std::string>> entries_;
};

/// The settings that every architecture needs: 2 layers, hidden 8, MLP 12, 2 heads, a vocabulary of 5 tokens.
inline GgufBuilder tiny_settings(const std::string& architecture) {
  GgufBuilder b;
  b.add("general.architecture", architecture.c_str());
  const std::string p = architecture + ".";
  b.add(p + "block_count", 2u).add(p + "embedding_length", 8u).add(p + "feed_forward_length", 12u);
  b.add(p + "context_length", 16u).add(p + "attention.head_count", 2u);
  b.add(p + (architecture == "gpt2" ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"), 1e-5f);
  b.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "gpt-2");
  b.add("tokenizer.ggml.tokens", std::vector<std::string>{"<|end|>", "x", "y", "xy", "[PAD4]"});
  b.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{3, 1, 1, 1, 5});
  b.add("tokenizer.ggml.merges", std::vector<std::string>{"x y"});
  b.add("tokenizer.ggml.bos_token_id", 0u).add("tokenizer.ggml.eos_token_id", 0u);
  return b;
}

/// llama, qwen2 or qwen3 with one key/value head of 4 (two query heads).
inline GgufBuilder tiny_llama(const std::string& architecture = "llama") {
  GgufBuilder b = tiny_settings(architecture);
  b.add(architecture + ".attention.head_count_kv", 1u);
  b.tensor("token_embd.weight", {5, 8}).tensor("output_norm.weight", {8});
  for (const std::string& p : {std::string("blk.0."), std::string("blk.1.")}) {
    b.tensor(p + "attn_norm.weight", {8}).tensor(p + "ffn_norm.weight", {8});
    b.tensor(p + "attn_q.weight", {8, 8}).tensor(p + "attn_k.weight", {4, 8}).tensor(p + "attn_v.weight", {4, 8});
    b.tensor(p + "attn_output.weight", {8, 8});
    b.tensor(p + "ffn_gate.weight", {12, 8})
        .tensor(p + "ffn_up.weight", {12, 8})
        .tensor(p + "ffn_down.weight", {8, 12});
    if (architecture == "qwen2")
      b.tensor(p + "attn_q.bias", {8}).tensor(p + "attn_k.bias", {4}).tensor(p + "attn_v.bias", {4});
    if (architecture == "qwen3") b.tensor(p + "attn_q_norm.weight", {4}).tensor(p + "attn_k_norm.weight", {4});
  }
  return b;
}

inline GgufBuilder tiny_gpt2() {
  GgufBuilder b = tiny_settings("gpt2");
  b.tensor("token_embd.weight", {5, 8}).tensor("position_embd.weight", {16, 8});
  b.tensor("output_norm.weight", {8}).tensor("output_norm.bias", {8});
  for (const std::string& p : {std::string("blk.0."), std::string("blk.1.")}) {
    for (const char* norm : {"attn_norm", "ffn_norm"})
      b.tensor(p + norm + ".weight", {8}).tensor(p + norm + ".bias", {8});
    b.tensor(p + "attn_qkv.weight", {24, 8}).tensor(p + "attn_qkv.bias", {24});
    b.tensor(p + "attn_output.weight", {8, 8}).tensor(p + "attn_output.bias", {8});
    b.tensor(p + "ffn_up.weight", {12, 8}).tensor(p + "ffn_up.bias", {12});
    b.tensor(p + "ffn_down.weight", {8, 12}).tensor(p + "ffn_down.bias", {8});
  }
  return b;
}

}  // namespace tessera::testing
