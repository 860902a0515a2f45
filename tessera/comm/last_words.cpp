#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/comm/blocked.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/last_words.h>
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

using std::chrono::milliseconds;

// Once the reason is known, the other threads get this long to notice it in their waits, and then to end the program.
constexpr milliseconds time_to_notice(500), time_to_unwind(3000);

std::string words_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

// Called in the dying thread. Looks at the type's name, because gloo::EnforceNotMet and related types are not visible
// here.
bool is_thrown_by_gloo() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  return type != nullptr && std::string_view(type->name()).find("4gloo") != std::string_view::npos;
}

// True if the remaining threads cannot end the program themselves: this thread may hold locks of Gloo that they wait
// for.
bool others_are_stuck() {
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    std::this_thread::sleep_for(milliseconds(10));
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited >= time_to_notice && blocked_threads().all()) return true;
    if (waited >= time_to_unwind) return false;
  }
}

}  // namespace

void install_last_words() {
  static const std::terminate_handler before = std::set_terminate([] {
    if (const auto error = std::current_exception()) {
      if (is_thrown_by_gloo()) {
        if (const auto reason = explain_crash(); reason && others_are_stuck()) log::error(*reason);
      }
      heartbeat().fail(concat("uncaught exception: ", words_of(error)));
    }
    if (before != nullptr) before();
    std::abort();
  });
}

}  // namespace tessera::comm
