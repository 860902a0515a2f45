#pragma once
/// \file
/// Small text helpers (fmt is not used: LibTorch's wheel ships a different fmt from Debian's, see
/// docs/dependencies.md).

#include <cstdint>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Streams the arguments one after another: concat("rank ", 3, " of ", 4).
template <class... Parts>
std::string concat(const Parts&... parts) {
  if constexpr (sizeof...(parts) == 0) {
    return {};
  } else {
    std::ostringstream out;
    (out << ... << parts);
    return std::move(out).str();
  }
}

/// "a, b, c".
std::string join(std::span<const std::string> parts, std::string_view separator = ", ");
std::vector<std::string> split(std::string_view text, char separator);  ///< "a,,b": three parts, "": one
std::string trim(std::string_view text);                                ///< removes ASCII white space from both ends
std::string to_lower(std::string_view text);                            ///< ASCII letters only

/// The candidate nearest to `name` by edit distance (with transpositions), if near enough to be a likely typo.
std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates);

/// "1.5 GiB" (binary units), "12.3 M" (decimal), "1:02:03" (seconds).
std::string format_bytes(std::uint64_t bytes);
std::string format_count(double count);
std::string format_duration(double seconds);
/// Shortest text that reads back as the same double, at most `digits` significant digits; "nan"/"inf" spelt out.
std::string format_real(double value, int digits = 17);

/// Whole-string parses; nullopt when the text is anything else (leading '+', blanks, overflow, "0x"...).
std::optional<std::int64_t> parse_int(std::string_view text);
std::optional<double> parse_real(std::string_view text);

/// True when `text` is well-formed UTF-8 (no surrogates, no overlong forms).
bool is_utf8(std::string_view text);

}  // namespace tessera
