#pragma once
/// \file
/// The methods of Python's str, list, tuple and dict that chat templates call.

#include <optional>
#include <string>
#include <string_view>

#include <tessera/text/jinja/objects.h>

namespace tessera::text::jinja {

/// changing: methods such as list.append, which transformers' sandbox refuses as well.
enum class MethodKind { none, method, changing };
MethodKind method_kind(const Value& self, std::string_view name);

/// The method of `self` that was probably meant.
std::optional<std::string> nearest_method(const Value& self, std::string_view name);

/// Calls the method `name` of `self` (MethodKind::method).
Value call_method(Machine& machine, const Value& self, std::string_view name, const Given& given);

class BoundMethod : public Callable {
 public:
  BoundMethod(Value self, std::string name) : self_(std::move(self)), name_(std::move(name)) {}
  const char* type() const override { return "builtin_function_or_method"; }
  Value call(Machine& machine, const Given& given) override { return call_method(machine, self_, name_, given); }

 private:
  Value self_;
  std::string name_;
};

}  // namespace tessera::text::jinja
