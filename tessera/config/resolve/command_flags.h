#pragma once
/// \file
/// Parses the flags of the small commands (generate, tokenize, ...): "--name value", "--name=value", "--name" for
/// switches; --x_y and --x-y are the same. `tessera train` has its own table (fields.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::config {

/// Throws InputError if a file or a link already exists at `path`, which is about to be written.
void require_new_file(const std::string& path);

class Flags {
 public:
  /// Unknown flags (with the nearest name), missing values and repetitions throw InputError. Flags in `repeatable`, a
  /// subset of `with_value`, may be given several times.
  Flags(const std::string& command, const std::vector<std::string>& arguments,
        const std::vector<std::string>& with_value, const std::vector<std::string>& switches,
        const std::vector<std::string>& repeatable = {});

  bool has(std::string_view name) const;
  std::optional<std::string> text(std::string_view name) const;  ///< the first value given
  std::vector<std::string> texts(std::string_view name) const;   ///< all values, in order
  std::string required(std::string_view name, std::string_view what) const;
  std::int64_t integer(std::string_view name, std::int64_t fallback) const;
  double real(std::string_view name, double fallback) const;
  /// Calls require_new_file() for each path, unless the switch "overwrite" is given.
  void require_new(const std::vector<std::string>& paths) const;

 private:
  std::string command_;
  std::vector<std::pair<std::string, std::string>> given_;
};

}  // namespace tessera::config
