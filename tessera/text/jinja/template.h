#pragma once
/// \file
/// text/jinja/: interprets the language of chat templates: Jinja 3.1 in the sandbox of transformers
/// (ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, break and continue, and `{% generation %}`), limited
/// in time and memory and with access only to its variables. This header: the public interface.

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
  std::vector<Span> generated;  ///< output of `{% generation %}` blocks, ascending
  /// A `{% generation %}` block is inside a macro or captured text, so the position of its output is unknown and
  /// missing from `generated`.
  bool generation_lost = false;
};

using Variables = std::vector<std::pair<std::string, Value>>;

/// Immutable: any number of threads may render with one template at the same time.
class Template {
 public:
  /// `name` is used in errors. Throws InputError "name:line:column: problem".
  Template(std::string_view source, std::string name);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  /// `now`: the time for strftime_now() (local time). Throws InputError naming the place in the template: for
  /// raise_exception, where Python would raise an exception, and when a limit is exceeded.
  Rendered render(const Variables& variables, const Limits& limits = {}, std::time_t now = std::time(nullptr)) const;

  bool has_generation() const;  ///< whether the template marks the assistant's output
  const std::string& source() const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace tessera::text::jinja
