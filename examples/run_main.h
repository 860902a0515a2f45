#pragma once
// Runs an example. It exits with 0, or prints one line with the error and exits with its code (2: bad input; 1: a
// failure at run time).

#include <tessera/base/error.h>
#include <tessera/base/log.h>

#include <exception>

inline int run_main(void (*work)(int argc, char** argv), int argc, char** argv) {
  try {
    work(argc, argv);
    return 0;
  } catch (const tessera::Error& error) {
    if (*error.what() != '\0') tessera::log::error(error.what());  // empty: another rank reports the reason
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    tessera::log::error(error.what());
    return 1;
  }
}
