/// \file
/// tessera embed: encodes a corpus of texts as vectors, for retrieval.

#include <ATen/ATen.h>

#include <unistd.h>
#include <algorithm>
#include <bit>
#include <cstdio>
#include <optional>
#include <span>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/format/jsonl.h>
#include <tessera/models/bert/sentence_encoder.h>
#include <tessera/text/tokenizer.h>
#include <tessera/train/inference/embed.h>
#include <tessera/train/loop/setup.h>

#include "tool.h"

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera embed --model DIR --input FILE --output FILE [options]\n\n"
    "Encodes texts as vectors, for retrieval: a BERT folder of Hugging Face's or of\n"
    "sentence-transformers (with the pooling of modules.json).\n\n"
    "  --model DIR               folder with config.json, model.safetensors, tokenizer.json\n"
    "                            or vocab.txt\n"
    "  --input FILE              .txt (one text per line) or .jsonl (one text per object)\n"
    "  --text_column_name NAME   field of a .jsonl line with the text [text]\n"
    "  --output FILE             .npy (float32, one row per text) or .jsonl\n"
    "  --overwrite               replaces an existing FILE\n"
    "  --batch_size N            texts at once, per replica [32]\n"
    "  --replicas N              groups of threads that share the work and the weights [1]\n"
    "  --pooling WAY             auto (the folder's), mean, cls, max [auto]\n"
    "  --normalize auto|yes|no   vectors of length 1 [auto: the folder's]\n"
    "  --max_length N            tokens per text, longer ones are cut [the folder's]\n"
    "  --device cpu|cuda|auto    auto: a GPU if the CUDA plug-in finds one [auto]\n"
    "  --threads_per_process N   of all replicas together [all cores]\n\n"
    "Rows are in the order of the texts; a blank line of a .txt is an empty text. The\n"
    "speed is printed to standard error.\n";

constexpr std::size_t texts_in_memory = 32768;  // bounds memory, but is enough to batch texts of similar lengths

/// Reads the texts of a file in portions.
class Texts {
 public:
  Texts(const std::string& path, std::string field) : path_(path), field_(std::move(field)) {
    if (!path_exists(path)) throw InputError(concat("--input: no such file: ", path));
    const std::string name = to_lower(path);
    if (name.ends_with(".jsonl"))
      lines_.emplace(path);
    else if (name.ends_with(".txt"))
      file_.emplace(path);
    else
      throw InputError(
          concat("--input ", path, ": unknown file type; expected .txt (one text per line) or .jsonl (objects)"));
    if (file_) rest_ = {reinterpret_cast<const char*>(file_->bytes().data()), file_->bytes().size()};
  }

  /// The next texts, at most `most`; empty at the end.
  std::vector<std::string> next(std::size_t most) {
    std::vector<std::string> texts;
    while (texts.size() < most) {
      if (file_) {
        if (rest_.empty()) break;
        const std::size_t end = std::min(rest_.find('\n'), rest_.size());
        std::string_view line = rest_.substr(0, end);
        if (line.ends_with('\r')) line.remove_suffix(1);
        texts.emplace_back(line);
        rest_.remove_prefix(std::min(end + 1, rest_.size()));
      } else {
        const auto value = lines_->next();
        if (!value) break;
        const Value* text = value->find(field_);
        if (text == nullptr)
          throw InputError(concat(value->where().str(), ": has no \"", field_,
                                  "\" (--text_column_name names the field with the text)"));
        texts.push_back(text->as_string());
      }
    }
    return texts;
  }

  std::uint64_t bytes() const { return file_ ? file_->bytes().size() : lines_->bytes(); }
  std::uint64_t bytes_read() const { return file_ ? file_->bytes().size() - rest_.size() : lines_->bytes_read(); }

 private:
  std::string path_, field_;
  std::optional<MappedFile> file_;
  std::optional<format::JsonlReader> lines_;
  std::string_view rest_;
};

/// NumPy's format 1.0 (numpy/lib/format.py): magic, a header of 128 bytes, rows.
std::string npy_header(std::int64_t rows, std::int64_t columns) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::size_t size = 128;
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(size - 10);
  header += '\0';
  header += concat("{'descr': '<f4', 'fortran_order': False, 'shape': (", rows, ", ", columns, "), }");
  header.resize(size - 1, ' ');
  return header + '\n';
}

std::string json_lines(const at::Tensor& vectors, std::int64_t first) {
  std::string out;
  for (std::int64_t row = 0; row < vectors.size(0); ++row) {
    out += concat("{\"index\": ", first + row, ", \"embedding\": [");
    const float* values = vectors.const_data_ptr<float>() + row * vectors.size(1);
    for (std::int64_t i = 0; i < vectors.size(1); ++i) {
      if (i > 0) out += ", ";
      out += format_real(static_cast<double>(values[i]), 9);
    }
    out += "]}\n";
  }
  return out;
}

/// Shows progress such as "1 of 5" on a terminal, at most ten times a second.
class ProgressLine {
 public:
  ~ProgressLine() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  void show(std::int64_t texts, double share, double seconds) {
    const std::int64_t now = monotonic_ns();
    if (!terminal_ || now - drawn_ < 100'000'000) return;
    drawn_ = now;
    shown_ = true;
    const double left = share > 0 ? seconds / share - seconds : 0;
    std::fputs(concat("\r\033[K", texts, " texts (", static_cast<int>(100 * share), "%), ",
                      format_real(static_cast<double>(texts) / std::max(seconds, 1e-9), 3), " texts/s, ",
                      format_duration(left), " left")
                   .c_str(),
               stderr);
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
  std::int64_t drawn_ = 0;
};

std::optional<models::Pooling> pooling_of(const Flags& flags) {
  const std::string word = to_lower(flags.text("pooling").value_or("auto"));
  if (word == "auto") return std::nullopt;
  if (word == "mean") return models::Pooling::mean;
  if (word == "cls") return models::Pooling::cls;
  if (word == "max") return models::Pooling::max;
  throw InputError(concat("--pooling is ", word, "; it must be auto, mean, cls or max"));
}

std::optional<bool> normalize_of(const Flags& flags) {
  const std::string word = to_lower(flags.text("normalize").value_or("auto"));
  if (word == "auto") return std::nullopt;
  if (word == "yes" || word == "true") return true;
  if (word == "no" || word == "false") return false;
  throw InputError(concat("--normalize is ", word, "; it must be auto, yes or no"));
}

}  // namespace

int embed(const Arguments& arguments) {
  const Flags flags("embed", arguments,
                    {"model", "model_name_or_path", "input", "text_column_name", "output", "batch_size", "replicas",
                     "pooling", "normalize", "max_length", "threads_per_process", "device"},
                    {"help", "overwrite"});
  if (flags.has("help")) {
    std::fputs(help, stdout);
    return 0;
  }
  const std::string folder = flags.has("model_name_or_path") ? *flags.text("model_name_or_path")
                                                             : flags.required("model", "the folder of an encoder");
  const std::string output = flags.required("output", "the .npy or .jsonl that receives the vectors");
  const bool npy = to_lower(output).ends_with(".npy");
  if (!npy && !to_lower(output).ends_with(".jsonl"))
    throw InputError(concat("--output ", output, ": expected a name that ends with .npy or .jsonl"));
  flags.require_new({output});
  const std::int64_t threads = flags.integer("threads_per_process", 0), replicas = flags.integer("replicas", 1);
  if (threads < 0) throw InputError(concat("--threads_per_process is ", threads, ", must be >= 0"));
  if (replicas < 1 || replicas > 1024)
    throw InputError(concat("--replicas is ", replicas, "; it must be between 1 and 1024"));
  train::set_threads(threads, 1);
  Texts texts(flags.required("input", "the .txt or .jsonl with the texts"),
              flags.text("text_column_name").value_or("text"));
  const std::int64_t max_length = flags.integer("max_length", 0);
  if (max_length < 0) throw InputError(concat("--max_length is ", max_length, "; it must be positive"));
  const c10::Device device = device_of(flags);
  const auto encoder = models::load_sentence_encoder(folder, pooling_of(flags), normalize_of(flags), max_length);
  encoder->to(device);
  train::Embedder embedder(encoder, text::load_tokenizer(folder),
                           {.batch_size = flags.integer("batch_size", 32), .replicas = static_cast<int>(replicas)});

  const std::int64_t begin_ns = monotonic_ns();
  const auto seconds = [&] { return seconds_since(begin_ns); };
  write_file_atomically(output, [&](int fd) {
    ProgressLine progress;
    std::int64_t rows = 0;
    const auto write = [&](std::string_view bytes) { write_all(fd, std::as_bytes(std::span(bytes)), output); };
    if (npy) write(npy_header(0, encoder->width()));
    for (;;) {
      const std::uint64_t before = texts.bytes_read();
      const std::vector<std::string> part = texts.next(texts_in_memory);
      if (part.empty()) break;
      const std::vector<std::string_view> views(part.begin(), part.end());
      const at::Tensor vectors = embedder.embed(views, [&](std::int64_t done) {
        const double share = static_cast<double>(done) / static_cast<double>(part.size());
        progress.show(rows + done,
                      (static_cast<double>(before) + share * static_cast<double>(texts.bytes_read() - before)) /
                          std::max(1.0, static_cast<double>(texts.bytes())),
                      seconds());
      });
      if (npy)
        write({reinterpret_cast<const char*>(vectors.const_data_ptr<float>()),
               static_cast<std::size_t>(vectors.numel()) * sizeof(float)});
      else
        write(json_lines(vectors, rows));
      rows += vectors.size(0);
    }
    if (rows == 0) throw InputError("--input contains no text");
    const std::string header = npy_header(rows, encoder->width());
    if (npy && ::pwrite(fd, header.data(), header.size(), 0) != static_cast<ssize_t>(header.size()))
      throw Error(concat(output, ": cannot write its header"));
  });

  const train::EmbedCounts& counts = embedder.counts();
  const auto per_second = [&](std::int64_t n) { return format_count(static_cast<double>(n) / seconds()); };
  if (counts.cut > 0)
    log::warning(counts.cut, " of ", counts.texts, " texts are longer than ", encoder->options().max_length,
                 " tokens and were cut (--max_length)");
  log::info(counts.texts, " texts, ", counts.tokens, " tokens in ", format_real(seconds(), 3),
            " s: ", per_second(counts.texts), " texts/s, ", per_second(counts.tokens), " tokens/s with ", replicas,
            replicas == 1 ? " replica of " : " replicas of ", embedder.threads_per_replica(),
            embedder.threads_per_replica() == 1 ? " thread" : " threads", " (",
            100 * (counts.padded_tokens - counts.tokens) / std::max<std::int64_t>(1, counts.padded_tokens),
            "% padding) -> ", output, " [", counts.texts, ", ", encoder->width(), "]");
  return 0;
}

}  // namespace tessera::tool
