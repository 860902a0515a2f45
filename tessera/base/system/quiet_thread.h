#pragma once
/// \file
/// Helper threads that leave signals to the program's own threads.

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace tessera {

/// Starts a thread that has every signal blocked from its first instruction. `name`: shown by top and debuggers, at
/// most 15 characters.
template <class Function>
std::thread quiet_thread(const char* name, Function function) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread thread(std::move(function));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace tessera
