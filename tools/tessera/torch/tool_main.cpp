/// \file
/// The entry point of libtessera_tool.so: dispatches a subcommand's name to its function, and turns an exception into a
/// message and an exit code (docs/configuration.md).

#include <c10/util/Exception.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

#include <tessera/base/error.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/launch/watch/verdict.h>
#include <tessera/nn/allocator.h>

#include "tool.h"

namespace {

int dispatch(std::string_view name, const tessera::tool::Arguments& arguments) {
  if (name == "train") return tessera::tool::train_rank(arguments);
  if (name == "generate") return tessera::tool::generate(arguments);
  if (name == "chat") return tessera::tool::chat(arguments);
  if (name == "embed") return tessera::tool::embed(arguments);
  if (name == "env") return tessera::tool::env(arguments);
  if (name == "test") return tessera::tool::self_test(arguments);
  if (name == "bench_comm") return tessera::tool::bench_comm(arguments);
  if (name == "xla_compile") return tessera::tool::xla_compile(arguments);
  if (name == "calibrate") return tessera::tool::calibrate(arguments);
  throw tessera::InputError(tessera::concat("libtessera_tool.so has no subcommand '", name,
                                            "': program and library are from different builds"));
}

int code(tessera::ExitCode exit_code) { return static_cast<int>(exit_code); }

/// Prints an error as main.cpp does. A launcher prefixes the rank; the agent reads from the board which rank failed,
/// and why.
void say(const std::string& message, tessera::ExitCode code = tessera::ExitCode::failed) {
  tessera::comm::heartbeat().fail(message, code);
  std::fputs(("tessera: " + message + "\n").c_str(), stderr);
}

/// Ends the process before LibTorch's destructors, which spend 0.2 s on dismantling its operator tables, a third of the
/// whole time of a short run. Our own handlers and objects are younger and have been destroyed by then.
void end_before_libtorch() {
  ::on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        ::_exit(status);
      },
      nullptr);
}

}  // namespace

extern "C" int tessera_tool_main(const char* name, int argc, const char** argv) {
  using tessera::ExitCode;
  end_before_libtorch();
  try {
    tessera::nn::keep_memory();
    const int result = dispatch(name, tessera::tool::Arguments(argv, argv + argc));
    std::fflush(stdout);
    return result;
  } catch (const tessera::Error& error) {
    // An error without a message happened on another rank, which reports it.
    if (*error.what() != '\0')
      say(error.what(), error.exit_code());
    else
      tessera::comm::heartbeat().fail(tessera::launch::failed_elsewhere, error.exit_code());
    return code(error.exit_code());
  } catch (const c10::Error& error) {
    say(tessera::concat("LibTorch: ", error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    say("out of memory: lower --per_device_train_batch_size or --block_size");
  } catch (const std::exception& error) {
    say(error.what());
  }
  return code(ExitCode::failed);
}
