#include <tessera/base/text.h>
#include <tessera/text/bpe/byte_alphabet.h>
#include <tessera/text/pipeline/decoder.h>
#include <tessera/text/unicode/utf8.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace tessera::text {
namespace {

using Tokens = std::vector<std::string>;

std::optional<unsigned char> byte_of(std::string_view token) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  // Rust's from_str_radix, which Hugging Face's decoder uses for these tokens, accepts "+F" as a number
  const int low = digit(token[4]), high = token[3] == '+' ? 0 : digit(token[3]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<unsigned char>(high << 4 | low);
}

Tokens join_bytes(const Tokens& tokens, bool raw_bytes) {
  Tokens out;
  std::string bytes;
  const auto finish = [&] {
    if (bytes.empty()) return;
    if (raw_bytes || is_utf8(bytes))
      out.push_back(bytes);
    else
      out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    if (const auto byte = byte_of(token)) {
      bytes += static_cast<char>(*byte);
      continue;
    }
    finish();
    out.push_back(token);
  }
  finish();
  return out;
}

std::string joined(const Tokens& tokens, std::string_view between = "") {
  std::string out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += between;
    out += tokens[i];
  }
  return out;
}

Tokens run(PlainDecoding step, Tokens tokens, bool raw_bytes) {
  switch (step) {
    case PlainDecoding::byte_level:
      for (std::string& token : tokens)
        if (auto bytes = ByteAlphabet::get().bytes(token)) token = std::move(*bytes);
      break;
    case PlainDecoding::byte_fallback:
      return join_bytes(tokens, raw_bytes);
    case PlainDecoding::fuse:
      break;
  }
  return {joined(tokens)};
}

Tokens run(const MetaspaceDecoding& step, Tokens tokens, bool /*raw_bytes*/) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    replace_all(tokens[i], step.replacement, i == 0 && step.drops_first ? "" : " ");
  return tokens;
}

Tokens run(const StripDecoding& step, Tokens tokens, bool /*raw_bytes*/) {
  for (std::string& token : tokens) {
    std::string_view rest = token;
    for (std::int64_t i = 0; i < step.start && rest.starts_with(step.content); ++i)
      rest.remove_prefix(step.content.size());
    for (std::int64_t i = 0; i < step.stop && rest.ends_with(step.content); ++i)
      rest.remove_suffix(step.content.size());
    token = std::string(rest);
  }
  return tokens;
}

Tokens run(const SuffixDecoding& step, Tokens tokens, bool /*raw_bytes*/) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (!step.suffix.empty()) replace_all(tokens[i], step.suffix, i + 1 == tokens.size() ? "" : " ");
  return tokens;
}

Tokens run(const CtcDecoding& step, Tokens tokens, bool /*raw_bytes*/) {
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  Tokens out;
  for (std::string& token : tokens) {
    if (!step.pad.empty()) replace_all(token, step.pad, "");
    if (step.cleanup) {
      clean_up_english(token);
      if (!step.delimiter.empty()) replace_all(token, step.delimiter, " ");
    }
    if (!token.empty()) out.push_back(std::move(token));
  }
  return out;
}

Tokens run(const WordPieceDecoder& step, Tokens tokens, bool /*raw_bytes*/) {
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = step.decode(tokens[i], i == 0);
  return tokens;
}

Tokens run(const ReplaceStep& step, Tokens tokens, bool /*raw_bytes*/) {
  Normalizer normalizer;
  normalizer.steps.emplace_back(step);
  std::string storage;
  for (std::string& token : tokens) token = std::string(normalizer.apply(token, storage));
  return tokens;
}

}  // namespace

std::string Decoder::decode(std::vector<std::string> tokens, bool raw_bytes) const {
  if (tokens.empty()) return "";
  for (const DecodingStep& step : steps)
    tokens = std::visit([&](const auto& each) { return run(each, std::move(tokens), raw_bytes); }, step);
  return joined(tokens, joins_with_blanks ? " " : "");
}

}  // namespace tessera::text
