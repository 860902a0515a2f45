// Text to tokens, line by line, on several threads.

#include <algorithm>
#include <chrono>
#include <memory>

#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/dataset.h>
#include <tessera/data/share_out.h>

namespace tessera::data {
namespace {

constexpr std::size_t piece_bytes = std::size_t{256} << 10;  // whole lines, for one thread
constexpr std::size_t pieces_at_once = 16;                   // bounds the memory
constexpr std::chrono::seconds between_lines(5);

void encode_each(std::string_view text, const text::Tokenizer& tokenizer, std::vector<std::int32_t>& tokens) {
  tokens.clear();
  const std::vector<std::int32_t> prefix = tokenizer.prefix(), suffix = tokenizer.suffix();
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end == std::string_view::npos ? end : end + 1);
    const std::vector<std::int32_t> ids = tokenizer.encode(line);
    for (const auto* part : {&prefix, &ids, &suffix}) tokens.insert(tokens.end(), part->begin(), part->end());
    text.remove_prefix(line.size());
  }
}

/// The next pieces of `rest`, which is shortened by them. Each ends behind a line feed or at the end.
std::vector<std::string_view> take_pieces(std::string_view& rest) {
  std::vector<std::string_view> pieces;
  while (!rest.empty() && pieces.size() < pieces_at_once) {
    const std::size_t end = rest.size() > piece_bytes ? rest.find('\n', piece_bytes) : std::string_view::npos;
    pieces.push_back(rest.substr(0, end == std::string_view::npos ? end : end + 1));
    rest.remove_prefix(pieces.back().size());
  }
  return pieces;
}

}  // namespace

std::vector<std::int32_t> encode_lines(std::string_view text, const text::Tokenizer& tokenizer, int threads,
                                       const std::string& name, const ReadProgress& progress) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size() / 3);
  std::vector<std::vector<std::int32_t>> encoded(pieces_at_once);
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto pieces = take_pieces(rest);
    share_out(pieces.size(), threads, [&](std::size_t i) { encode_each(pieces[i], tokenizer, encoded[i]); });
    for (std::size_t i = 0; i < pieces.size(); ++i) tokens.insert(tokens.end(), encoded[i].begin(), encoded[i].end());
    if (progress) progress(name, text.size() - rest.size(), text.size());
  }
  return tokens;
}

ReadProgress logged_progress() {
  using Clock = std::chrono::steady_clock;
  return [last = Clock::now()](const std::string& path, std::uint64_t done, std::uint64_t of) mutable {
    if (done == of || Clock::now() - last < between_lines) return;
    last = Clock::now();
    log::info(path, ": ", format_bytes(done), " of ", format_bytes(of), " tokenized (", 100 * done / of, "%)");
  };
}

}  // namespace tessera::data
