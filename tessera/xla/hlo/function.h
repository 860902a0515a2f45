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

/// One program: its arguments, operations and results.
class Function {
 public:
  /// Adds an argument; `donated_to` >= 0: that result reuses its memory.
  Value argument(const Type& type, int donated_to = -1);
  /// Writes "%n = TEXT" and names the result.
  Value write(const std::string& text, const Type& type);
  /// As above, for an operation with several results.
  std::vector<Value> write(const std::string& text, const std::vector<Type>& types);
  void result(const Value& value) { results_.push_back(value); }

  const std::vector<Type>& arguments() const { return arguments_; }
  const std::vector<Value>& results() const { return results_; }
  std::string fresh_name() { return "%" + std::to_string(next_++); }

  /// The whole module, with the function as main, for `replicas` devices.
  std::string module(int replicas) const;

 private:
  std::vector<Type> arguments_;
  std::vector<int> donated_;
  std::string body_;
  std::vector<Value> results_;
  int next_ = 0;
};

}  // namespace tessera::xla::hlo
