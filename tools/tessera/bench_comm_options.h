#pragma once
/// \file
/// Options of `tessera bench comm`. Header only: the program (torch-free) checks the arguments before it starts ranks,
/// and every rank (libtessera_tool.so) parses them again.

#include <tessera/base/error.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/layout/backends.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tool {

struct BenchCommOptions {
  int num_processes = 2;
  std::vector<std::string> backends = {"auto"};  ///< measured in turns, in the same processes
  std::vector<std::string> ops;
  std::vector<std::int64_t> bytes;  ///< ascending; size of the larger tensor of an operation
  std::string dtype = "float32";
  Device device = Device::cpu;
  int rounds = 20, warmup = 2;
  bool shared = false;  ///< tensors of comm::empty_shared
  bool json = false;
  bool help = false;
};

inline const std::vector<std::string>& bench_comm_ops() {
  static const std::vector<std::string> names = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
                                                 "all_to_all", "scatter",        "gather",     "send_recv", "barrier"};
  return names;
}

/// Parses "4096", "64K", "64M", "1G" (binary units; a B or iB may follow); nullopt for anything else.
inline std::optional<std::int64_t> parse_size(const std::string& written) {
  const std::string lower = to_lower(written);
  std::string_view text = lower;
  if (text.ends_with("ib")) {
    text.remove_suffix(2);
  } else if (text.ends_with("b")) {
    text.remove_suffix(1);
  }
  std::int64_t unit = 1;
  const std::size_t which = text.empty() ? std::string::npos : std::string_view("kmg").find(text.back());
  if (which != std::string::npos) {
    unit = std::int64_t{1} << (10 * (which + 1));
    text.remove_suffix(1);
  }
  const auto number = parse_int(text);
  constexpr std::int64_t limit = std::int64_t{1} << 40;
  if (!number || *number < 0 || *number > limit / unit) return std::nullopt;
  return *number * unit;
}

/// Parses "64M", "1K,64M", or "1K..256M" (the first size, doubled repeatedly up to the last).
inline std::vector<std::int64_t> parse_sizes(const std::string& text) {
  const auto one = [&](const std::string& part) {
    const auto size = parse_size(part);
    if (!size || *size < 1)
      throw InputError(concat("--bytes ", text, ": '", part,
                              "' is not a size; expected sizes such as 4096, 64K, 64M, or ranges such as 1K..256M"));
    return *size;
  };
  std::vector<std::int64_t> sizes;
  for (const std::string& part : split(text, ',')) {
    const std::size_t dots = part.find("..");
    if (dots == std::string::npos) {
      sizes.push_back(one(part));
      continue;
    }
    const std::int64_t first = one(part.substr(0, dots)), last = one(part.substr(dots + 2));
    if (last < first) throw InputError(concat("--bytes ", text, ": the range ", part, " is empty"));
    for (std::int64_t size = first; size <= last; size *= 2) sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

/// Parses a comma-separated list of names, each one of `known`, in the order given.
inline std::vector<std::string> parse_names(const std::string& flag, const std::string& text,
                                            const std::vector<std::string>& known) {
  std::vector<std::string> names;
  for (const std::string& name : split(text, ',')) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const auto near = nearest(name, known);
      throw InputError(concat("--", flag, " ", text, ": '", name, "' is not one of ", join(known),
                              near ? concat("; did you mean '", *near, "'?") : ""));
    }
    names.push_back(name);
  }
  return names;
}

/// Throws InputError.
inline BenchCommOptions parse_bench_comm(const std::vector<std::string>& arguments) {
  const config::Flags flags(
      "bench comm", arguments,
      {"num_processes", "nproc_per_node", "backend", "op", "bytes", "dtype", "device", "rounds", "warmup"},
      {"shared", "json", "help"});
  BenchCommOptions options;
  options.help = flags.has("help");
  const auto whole = [&](const char* name, int fallback, int minimum, int maximum) {
    const std::int64_t value = flags.integer(name, fallback);
    if (value < minimum || value > maximum)
      throw InputError(concat("--", name, " is ", value, ", must be ", minimum, "..", maximum));
    return static_cast<int>(value);
  };
  options.num_processes =
      whole(flags.has("nproc_per_node") ? "nproc_per_node" : "num_processes", options.num_processes, 1, 4096);
  options.rounds = whole("rounds", options.rounds, 1, 1'000'000);
  options.warmup = whole("warmup", options.warmup, 0, 1'000'000);
  if (const auto text = flags.text("backend"))
    options.backends = parse_names("backend", *text, layout::backend_names(/*with_comparison=*/true));
  const std::string ops = flags.text("op").value_or("all_reduce,reduce_scatter,all_gather");
  options.ops = ops == "all" ? bench_comm_ops() : parse_names("op", ops, bench_comm_ops());
  options.bytes = parse_sizes(flags.text("bytes").value_or("4K,64K,1M,16M,64M"));
  static const std::vector<std::string> dtypes = {"float32", "float64", "bfloat16", "float16",
                                                  "int32",   "int64",   "int8",     "uint8"};
  const auto dtype = parse_names("dtype", flags.text("dtype").value_or(options.dtype), dtypes);
  if (dtype.size() != 1) throw InputError("--dtype: one type at a time");
  options.dtype = dtype.front();
  const auto device = parse_names("device", flags.text("device").value_or(word_of(options.device)), {"cpu", "cuda"});
  if (device.size() != 1) throw InputError("--device: one at a time");
  options.device = *parse_word<Device>(device.front());
  options.shared = flags.has("shared");
  options.json = flags.has("json");
  return options;
}

}  // namespace tessera::tool
