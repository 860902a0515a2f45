#include <tessera/train/signals.h>

#include <unistd.h>
#include <csignal>

#include <tessera/base/error.h>

namespace tessera::train {
namespace {

// A signal handler can only reach static storage; both are written by the handlers alone.
volatile std::sig_atomic_t terminate_seen = 0;
volatile std::sig_atomic_t interrupts_seen = 0;
struct sigaction previous_terminate, previous_interrupt, previous_pipe;

void on_terminate(int) { terminate_seen = 1; }

void on_interrupt(int) {
  if (interrupts_seen != 0) _exit(static_cast<int>(ExitCode::interrupted));
  interrupts_seen = 1;
}

void install(int signal, void (*handler)(int), struct sigaction* previous) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // a signal must not turn a blocking collective into an error
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, previous);
}

}  // namespace

StopSignals::StopSignals() {
  terminate_seen = 0;
  interrupts_seen = 0;
  install(SIGTERM, on_terminate, &previous_terminate);
  install(SIGINT, on_interrupt, &previous_interrupt);
  install(SIGPIPE, SIG_IGN, &previous_pipe);
}

StopSignals::~StopSignals() {
  sigaction(SIGTERM, &previous_terminate, nullptr);
  sigaction(SIGINT, &previous_interrupt, nullptr);
  sigaction(SIGPIPE, &previous_pipe, nullptr);
}

StopRequest StopSignals::requested() const {
  if (interrupts_seen != 0) return StopRequest::interrupt;
  return terminate_seen != 0 ? StopRequest::terminate : StopRequest::none;
}

}  // namespace tessera::train
