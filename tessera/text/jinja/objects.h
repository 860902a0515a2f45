#pragma once
/// \file
/// Values with behaviour: callables and namespaces, and the arguments of calls.

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/text/jinja/machine.h>

namespace tessera::text::jinja {

/// The evaluated arguments of a call, a filter or a test.
struct Given {
  Values plain;
  std::vector<std::pair<std::string, Value>> named;
};

/// Arguments by parameter position; nullptr if not given. Refers to `given`.
class Bound {
 public:
  /// The first `required` parameters must be given. Throws Fault where Python throws TypeError.
  Bound(std::string_view function, const Given& given, std::initializer_list<std::string_view> parameters,
        std::size_t required = 0);

  const Value* operator[](std::size_t i) const { return values_[i]; }
  bool truth_of(std::size_t i, bool otherwise) const;
  /// Throws Fault if the argument is not an integer.
  std::int64_t integer_of(std::size_t i, std::int64_t otherwise) const;
  const std::string& string_of(std::size_t i) const;

 private:
  std::string function_;
  std::vector<const Value*> values_;
  std::vector<std::string_view> names_;
};

/// A callable value.
class Callable : public Object {
 public:
  const char* type() const override { return "function"; }
  virtual Value call(Machine& machine, const Given& given) = 0;
};

/// A value with its own attributes.
class Attributes {
 public:
  virtual ~Attributes() = default;
  virtual std::optional<Value> attribute(Machine& machine, std::string_view name) = 0;
};

/// namespace(a=1): the only mutable value in a template.
class Namespace : public Object, public Attributes {
 public:
  const char* type() const override { return "Namespace"; }
  std::optional<Value> attribute(Machine& machine, std::string_view name) override;
  /// Throws Fault for names that begin with '_'.
  void set(Machine& machine, std::string_view name, Value value);

  Members members;
};

}  // namespace tessera::text::jinja
