#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <tessera/base/names/pattern.h>

#include <array>
#include <cstdint>
#include <new>
#include <utility>

#include <tessera/base/error.h>

namespace tessera {
namespace {

constexpr std::uint32_t most_steps = 1'000'000;  // about 20 ms

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

template <class Object, void (*release)(Object*)>
std::shared_ptr<Object> owned(Object* object) {
  if (object == nullptr) throw std::bad_alloc();
  return {object, release};
}

}  // namespace

Pattern::Pattern(std::string_view what, std::string text) : what_(what), text_(std::move(text)) {
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* const code = pcre2_compile(units(text_), text_.size(), 0, &error, &place, nullptr);
  if (code == nullptr)
    throw InputError(concat(what_, " '", text_, "' is not a regular expression: ", message_of(error), " at byte ",
                            place, "; write it as for Python's re"));
  code_ = std::shared_ptr<const void>(code, [](void* held) { pcre2_code_free(static_cast<pcre2_code*>(held)); });
}

bool Pattern::fits(std::string_view name) const { return search(name, PCRE2_ANCHORED | PCRE2_ENDANCHORED); }

bool Pattern::occurs_in(std::string_view name) const { return search(name, 0); }

bool Pattern::search(std::string_view name, unsigned options) const {
  const auto* const code = static_cast<const pcre2_code*>(code_.get());
  const auto limits = owned<pcre2_match_context, pcre2_match_context_free>(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(limits.get(), most_steps);
  const auto found = owned<pcre2_match_data, pcre2_match_data_free>(pcre2_match_data_create(1, nullptr));
  const int result = pcre2_match(code, units(name), name.size(), 0, options, found.get(), limits.get());
  if (result < PCRE2_ERROR_NOMATCH)
    throw InputError(concat(what_, " '", text_, "' cannot be compared with '", name, "': ", message_of(result),
                            "; write it without repetitions inside repetitions"));
  return result >= 0;
}

}  // namespace tessera
