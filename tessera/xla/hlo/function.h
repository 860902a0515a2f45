#pragma once
/// \file
/// xla/hlo/: StableHLO text (https://openxla.org/stablehlo/spec), which plug-ins compile. A Function collects the
/// operations of one program; operations.h has them as free functions. Independent of LibTorch.

#include <tessera/xla/pjrt/client.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::xla::hlo {

using Sizes = std::vector<std::int64_t>;

struct Type {
  Sizes sizes;
  Element element = Element::float32;
  bool operator==(const Type&) const = default;
  std::int64_t elements() const;
  std::int64_t bytes() const;
};
/// "tensor<2x3xf32>".
std::string text(const Type& type);

/// A result or an argument of a program.
struct Value {
  std::string name;  ///< "%12"
  Type type;
};

/// How a global program's array is divided over the compiler's partitions, as GSPMD's text; "": not annotated.
using Sharding = std::string;
/// Dimension 0 of an array of `rank` dimensions is divided evenly, the last part padded; scalars, and with one
/// partition all arrays, are whole.
Sharding by_rows(std::size_t rank, int partitions);
/// Every partition has the whole array.
Sharding replicated(int partitions);

/// Devices that run a program: replicas have arguments of their own, partitions are parts of one program.
struct Ranks {
  int replicas = 1, partitions = 1;
};

/// One program: its arguments, operations and results.
class Function {
 public:
  /// Adds an argument; `donated_to` >= 0: that result reuses its memory.
  Value argument(const Type& type, int donated_to = -1, const Sharding& sharding = {});
  /// Writes "%n = TEXT" and names the result.
  Value write(const std::string& text, const Type& type);
  /// As above, for an operation with several results.
  std::vector<Value> write(const std::string& text, const std::vector<Type>& types);
  void result(const Value& value, const Sharding& sharding = {}) {
    results_.push_back(value);
    of_results_.push_back(sharding);
  }

  const std::vector<Type>& arguments() const { return arguments_; }
  const std::vector<Value>& results() const { return results_; }
  std::string fresh_name() { return "%" + std::to_string(next_++); }

  /// The whole module, with the function as main.
  std::string module(const Ranks& ranks) const;

 private:
  std::vector<Type> arguments_;
  std::vector<int> donated_;
  std::vector<Sharding> of_arguments_, of_results_;
  std::string body_;
  std::vector<Value> results_;
  int next_ = 0;
};

}  // namespace tessera::xla::hlo
