#pragma once
/// \file
/// base/names/: module names and patterns that match them.
///
/// Regular expressions that select modules to wrap, adapt or checkpoint by name. The syntax is PCRE2's, which covers
/// everything that patterns written for Python's `re` use. The number of match steps is bounded, because patterns may
/// come from untrusted files.

#include <memory>
#include <string>
#include <string_view>

namespace tessera {

/// Immutable: any number of threads may use one object at the same time.
class Pattern {
 public:
  /// Throws InputError with `what` ("--wrap_pattern"), the text, the position and the fault.
  Pattern(std::string_view what, std::string text);

  /// Whether it matches the whole name. Throws InputError when the search takes more than a million steps.
  bool fits(std::string_view name) const;
  /// Whether it matches a part of the name. Throws as fits() does.
  bool occurs_in(std::string_view name) const;

 private:
  bool search(std::string_view name, unsigned options) const;

  std::string what_;
  std::string text_;
  std::shared_ptr<const void> code_;  // pcre2_code
};

}  // namespace tessera
