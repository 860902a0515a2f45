#include <tessera/format/gguf/gguf_to_hf.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/half.h>
#include <tessera/base/text.h>
#include <tessera/format/gguf/gguf_quants.h>

namespace tessera::format {
namespace {

const char* transformers_name(DType dtype) {
  if (dtype == DType::f32) return "float32";
  if (dtype == DType::f16) return "float16";
  TESSERA_CHECK(dtype == DType::bf16, "dtype ", dtype_name(dtype), " is not one of F32, F16, BF16");
  return "bfloat16";
}

/// Writes `value` as element `index` of `out`. Returns false if it does not fit.
template <DType dtype>
bool put(std::byte* out, std::size_t index, float value) {
  if constexpr (dtype == DType::f32) {
    std::memcpy(out + index * 4, &value, 4);
    return true;
  } else {
    const std::uint16_t bits = dtype == DType::f16 ? to_f16(value) : to_bf16(value);
    std::memcpy(out + index * 2, &bits, 2);
    return dtype == DType::bf16 || (bits & 0x7FFF) != 0x7C00 || std::isinf(value);
  }
}

/// The row of the Hugging Face tensor that corresponds to row `r` of the GGUF tensor. In a head of D rows, GGUF stores
/// Hugging Face's rows i and i + D/2 adjacent, as 2i and 2i + 1.
std::int64_t row_place(std::int64_t r, std::int64_t head_rows) {
  const std::int64_t head = r / head_rows, inside = r % head_rows;
  return head * head_rows + inside % 2 * (head_rows / 2) + inside / 2;
}

/// Converts rows [begin, end) of the GGUF tensor. Returns false if a value does not fit `dtype`.
template <DType dtype>
bool convert_rows(std::span<const std::byte> source, const HfTensor& tensor, std::int64_t rows, std::int64_t begin,
                  std::int64_t end, std::byte* out) {
  constexpr std::int64_t tile = 16;  // when transposing, this many adjacent elements are written together
  const std::int64_t columns = tensor.elements() / rows;
  const std::size_t row_bytes = source.size() / static_cast<std::size_t>(rows);
  const std::int64_t head_rows = tensor.rearrange == GgufRearrange::undo_interleaving ? rows / tensor.heads : 0;
  std::vector<float> values(static_cast<std::size_t>(std::min(tile, end - begin) * columns));
  bool fits = true;
  for (std::int64_t r = begin; r < end; r += tile) {
    const std::int64_t n = std::min(tile, end - r);
    dequantise(tensor.source->type,
               source.subspan(static_cast<std::size_t>(r) * row_bytes, static_cast<std::size_t>(n) * row_bytes),
               std::span(values).first(static_cast<std::size_t>(n * columns)));
    if (tensor.offset != 0)
      for (float& value : values) value += tensor.offset;
    if (tensor.rearrange == GgufRearrange::transpose) {
      for (std::int64_t c = 0; c < columns; ++c)
        for (std::int64_t i = 0; i < n; ++i)
          fits &= put<dtype>(out, static_cast<std::size_t>(c * rows + r + i),
                             values[static_cast<std::size_t>(i * columns + c)]);
      continue;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t to = head_rows > 0 ? row_place(r + i, head_rows) : r + i;
      std::byte* place = out + static_cast<std::size_t>(to * columns) * dtype_size(dtype);
      const float* from = values.data() + i * columns;
      for (std::int64_t c = 0; c < columns; ++c) fits &= put<dtype>(place, static_cast<std::size_t>(c), from[c]);
    }
  }
  return fits;
}

using Convert = bool (*)(std::span<const std::byte>, const HfTensor&, std::int64_t, std::int64_t, std::int64_t,
                         std::byte*);

Convert converter(DType dtype) {
  if (dtype == DType::f16) return convert_rows<DType::f16>;
  if (dtype == DType::bf16) return convert_rows<DType::bf16>;
  return convert_rows<DType::f32>;
}

}  // namespace

void read_gguf_tensor(const GgufFile& file, const HfTensor& tensor, DType dtype, std::span<std::byte> out,
                      int threads) {
  transformers_name(dtype);  // checks it
  TESSERA_CHECK(out.size() == static_cast<std::size_t>(tensor.elements()) * dtype_size(dtype), "tensor ", tensor.name);
  const auto whole = file.bytes(*tensor.source);  // the parts are consecutive, and each consists of whole rows
  const std::size_t part_bytes = whole.size() / static_cast<std::size_t>(tensor.parts);
  const auto source = whole.subspan(static_cast<std::size_t>(tensor.part) * part_bytes, part_bytes);
  // A vector is one row, but in a rearranged bias each element is a row.
  const bool vector = tensor.source->shape.size() < 2;
  const std::int64_t rows = vector ? (tensor.rearrange == GgufRearrange::undo_interleaving ? tensor.elements() : 1)
                                   : tensor.source->shape[tensor.parts > 1 ? 1 : 0];
  constexpr std::int64_t least = 1 << 18;  // minimum number of elements for which another thread pays off
  const std::int64_t useful = std::min(tensor.elements() / least + 1, rows);
  const std::int64_t n = std::clamp<std::int64_t>(threads, 1, useful);
  std::atomic<bool> fits = true;
  const auto work = [&](std::int64_t t) {
    const std::int64_t begin = rows * t / n, end = rows * (t + 1) / n;
    if (!converter(dtype)(source, tensor, rows, begin, end, out.data())) fits = false;
  };
  {
    std::vector<std::jthread> others;
    for (std::int64_t t = 1; t < n; ++t) others.emplace_back(work, t);
    work(0);
  }
  if (!fits)
    throw InputError(concat(file.path(), ": tensor '", tensor.source->name,
                            "' has values beyond 65504, the float16 limit: use bfloat16 or float32"));
}

GgufToHf plan_gguf_to_hf(const GgufFile& file, const GgufToHfOptions& options) {
  transformers_name(options.dtype);  // checks it
  GgufToHf plan;
  plan.model = read_gguf_model(file);
  plan.tensors = hf_tensors(file, plan.model);
  if (options.tokenizer) plan.tokenizer = read_gguf_tokenizer(file, plan.model);
  for (const HfTensor& tensor : plan.tensors) plan.parameters += static_cast<std::uint64_t>(tensor.elements());
  plan.weight_bytes = plan.parameters * dtype_size(options.dtype);
  return plan;
}

void write_gguf_to_hf(const GgufFile& file, const GgufToHf& plan, const std::string& folder,
                      const GgufToHfOptions& options) {
  const auto write = [&](const char* name, const std::string& text) {
    write_file_atomically(path_join(folder, name), text);
  };
  write("config.json", dump_json(hf_config(plan.model, transformers_name(options.dtype))) + "\n");
  write("generation_config.json", dump_json(hf_generation_config(plan.model)) + "\n");
  if (!plan.tokenizer.json.empty()) {
    write("tokenizer.json", plan.tokenizer.json);
    write("tokenizer_config.json", plan.tokenizer.config_json);
  }
  const int threads = options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  std::vector<std::byte> buffer;  // holds the only tensor in memory
  std::uint64_t done = 0;
  std::vector<TensorSource> sources;
  for (const HfTensor& tensor : plan.tensors) {
    sources.push_back({tensor.name, options.dtype, tensor.shape, [&]() -> std::span<const std::byte> {
                         if (options.progress) options.progress(done, plan.weight_bytes);
                         const std::size_t bytes =
                             static_cast<std::size_t>(tensor.elements()) * dtype_size(options.dtype);
                         if (buffer.size() < bytes) buffer.resize(bytes);
                         const auto out = std::span(buffer).first(bytes);
                         read_gguf_tensor(file, tensor, options.dtype, out, threads);
                         done += bytes;
                         return out;
                       }});
  }
  write_safetensors(path_join(folder, "model.safetensors"), std::move(sources));
}

}  // namespace tessera::format
