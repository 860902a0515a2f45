#pragma once
/// \file
/// tools/tessera/torch/: the subcommands that need tensors, in libtessera_tool.so. Each takes the arguments after its name and
/// returns an exit code; errors are thrown (tool_main.cpp turns them into messages and exit codes).

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tool {

using Arguments = std::vector<std::string>;

int train_rank(const Arguments& arguments);  ///< one rank of `tessera train`
int generate(const Arguments& arguments);
int env(const Arguments& arguments);
int self_test(const Arguments& arguments);

/// The small commands' flags: "--name value", "--name=value", "--name" for switches; --x_y and --x-y are the same.
/// Unknown ones (with the nearest name), missing values and repetitions throw InputError.
class Flags {
 public:
  Flags(const std::string& command, const Arguments& arguments, const std::vector<std::string>& with_value,
        const std::vector<std::string>& switches);
  bool has(std::string_view name) const;
  std::optional<std::string> text(std::string_view name) const;
  std::int64_t integer(std::string_view name, std::int64_t fallback) const;
  double real(std::string_view name, double fallback) const;

 private:
  std::vector<std::pair<std::string, std::string>> given_;
};

}  // namespace tessera::tool
