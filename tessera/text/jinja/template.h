#pragma once
/// \file
/// text/jinja/: an interpreter of the language that chat templates are written in: Jinja 3.1 in the sandbox of
/// transformers (ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, break and continue, and
/// `{% generation %}`), bounded in time and memory and with access to nothing but its variables. This header: what
/// others use.

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/base/value.h>
#include <tessera/text/jinja/machine.h>

namespace tessera::text::jinja {

/// Bytes [begin, end) of a text.
struct Span {
  std::size_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

struct Rendered {
  std::string text;
  std::vector<Span> generated;  ///< what came out of `{% generation %}` blocks, ascending
  /// A `{% generation %}` block stands in a macro or in what is captured, so that where its text went is not known:
  /// `generated` lacks it.
  bool generation_lost = false;
};

using Variables = std::vector<std::pair<std::string, Value>>;

/// Immutable: any number of threads may render with one template at the same time.
class Template {
 public:
  /// `name` is what errors call it. Throws InputError "name:line:column: what is wrong".
  Template(std::string_view source, std::string name);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  /// `now`: what strftime_now() tells (local time). Throws InputError naming the place in the template: what the
  /// template refuses (raise_exception), what Python would throw for, and what goes beyond the limits.
  Rendered render(const Variables& variables, const Limits& limits = {}, std::time_t now = std::time(nullptr)) const;

  bool has_generation() const;  ///< it marks what the assistant says
  const std::string& source() const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace tessera::text::jinja
