#pragma once
/// \file
/// Base class of the checks of settings against each other: reports problems of named settings and looks up origins.

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/resolved.h>

#include <initializer_list>
#include <optional>
#include <string>

namespace tessera::config {

class RuleChecks {
 protected:
  RuleChecks(const Resolved& resolved, Problems& problems)
      : resolved_(resolved), c_(resolved.values), problems_(problems) {}

  /// Adds a problem with the named settings, unless one of them is invalid by itself.
  template <class... Parts>
  void problem(std::initializer_list<const char*> about, const Parts&... parts) {
    for (const char* name : about)
      if (problems_.doubtful.contains(name)) return;
    problems_.lines.push_back(concat(parts...));
  }
  /// Parses a structured setting with `parse`; empty if it throws InputError, which is added to the problems.
  template <class Parse>
  auto read(const char* name, const Parse& parse) -> std::optional<decltype(parse())> {
    try {
      return parse();
    } catch (const InputError& error) {
      problem({name}, error.what());
      return std::nullopt;
    }
  }
  const Origin& origin(const char* name) const { return resolved_.origin(name); }
  std::string said(const char* name) const { return resolved_.said(name); }
  bool is_default(const char* name) const { return resolved_.is_default(name); }

  const Resolved& resolved_;
  const RunConfig& c_;
  Problems& problems_;
};

}  // namespace tessera::config
