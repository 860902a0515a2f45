#pragma once
/// \file
/// base/names/: names of modules, and patterns of them.
///
/// Regular expressions over names: of modules to wrap, to adapt, to checkpoint. In PCRE2's syntax, which has all that
/// patterns written for Python's `re` use; the number of steps is bounded, because patterns come from files of others.

#include <memory>
#include <string>
#include <string_view>

namespace tessera {

/// Immutable: any number of threads may use one object at the same time.
class Pattern {
 public:
  /// Throws InputError that names `what` ("--wrap_pattern"), the text, the position and the fault.
  Pattern(std::string_view what, std::string text);

  /// Whether it fits the whole name. Throws InputError when the search takes more than a million steps.
  bool fits(std::string_view name) const;
  /// Whether it fits a part of the name. Throws as fits() does.
  bool occurs_in(std::string_view name) const;

 private:
  bool search(std::string_view name, unsigned options) const;

  std::string what_;
  std::string text_;
  std::shared_ptr<const void> code_;  // pcre2_code
};

}  // namespace tessera
