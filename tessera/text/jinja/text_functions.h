#pragma once
/// \file
/// The operations of Python's str. Text is well-formed UTF-8; counts and positions are in characters unless stated
/// otherwise.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/text/jinja/machine.h>

namespace tessera::text::jinja {

std::size_t character_count(std::string_view text);
std::vector<std::string_view> characters_of(std::string_view text);
/// `place` must be less than the count.
std::string_view character_at(std::string_view text, std::size_t place);

/// str.strip(characters); without `characters`, strips white space.
enum class Side { left, right, both };
std::string_view strip(std::string_view text, std::optional<std::string_view> characters, Side side);

/// str.split and str.rsplit; most < 0: no limit. Without a separator, splits at white space.
std::vector<std::string_view> split_text(std::string_view text, std::optional<std::string_view> separator,
                                         std::int64_t most, bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);
/// str.replace; most < 0: all.
std::string replaced(Machine& machine, std::string_view text, std::string_view old, std::string_view with,
                     std::int64_t most);
/// Number of non-overlapping occurrences.
std::size_t count_of(std::string_view text, std::string_view what);
/// Replaces & < > ' " with HTML entities.
std::string escaped(std::string_view text);
/// Each word's first letter in title case, the rest in lower case (str.title).
std::string titled(std::string_view text);
/// Pads `text` to `width` characters, with the padding after it (left) or before it (right).
enum class Align { left, right };
std::string aligned(Machine& machine, std::string_view text, std::int64_t width, std::string_view fill, Align align);

/// int(text, base) and float(text), or nullopt where Python throws ValueError. An integer beyond 64 bits throws Fault.
std::optional<std::int64_t> parse_python_integer(std::string_view text, int base);
std::optional<double> parse_python_real(std::string_view text);

}  // namespace tessera::text::jinja
