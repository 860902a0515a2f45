#include <tessera/base/text.h>
#include <tessera/comm/last_words.h>
#include <tessera/comm/life.h>
#include <tessera/comm/watch.h>

#include <cxxabi.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <thread>
#include <typeinfo>

namespace tessera::comm {
namespace {

// How long the other threads have to fail in an orderly way once the reason is known.
constexpr std::chrono::seconds time_to_unwind(3);

std::string words_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

// In the thread that is about to die. gloo::EnforceNotMet and its kin are not visible to us as types.
bool is_thrown_by_gloo() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  return type != nullptr && std::string_view(type->name()).find("4gloo") != std::string_view::npos;
}

}  // namespace

void install_last_words() {
  static const std::terminate_handler before = std::set_terminate([] {
    if (const auto error = std::current_exception()) {
      if (is_thrown_by_gloo() && explain_crash()) std::this_thread::sleep_for(time_to_unwind);
      life().fail(concat("uncaught exception: ", words_of(error)));
    }
    if (before != nullptr) before();
    std::abort();
  });
}

}  // namespace tessera::comm
