#include <tessera/train/loop/signals.h>

#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <tessera/base/error.h>

namespace tessera::train {
namespace {

// Signal handlers can access only static storage; nothing but the handlers writes to these two.
volatile std::sig_atomic_t terminate_seen = 0;
volatile std::sig_atomic_t interrupts_seen = 0;
struct sigaction previous_terminate, previous_interrupt, previous_pipe;
stack_t previous_stack;

constexpr std::size_t stack_bytes = 64 << 10;  // AVX-512 alone needs a frame of 3 KB

void on_terminate(int) { terminate_seen = 1; }

void on_interrupt(int) {
  if (interrupts_seen != 0) _exit(static_cast<int>(ExitCode::interrupted));
  interrupts_seen = 1;
}

void install(int signal, void (*handler)(int), struct sigaction* previous) {
  struct sigaction action = {};
  action.sa_handler = handler;
  // A signal must not turn a blocking collective into an error, and its frame must not be placed at the stack pointer:
  // oneDNN's generated matrix products use that register for data, so the kernel would write the frame into the heap.
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, previous);
}

}  // namespace

StopSignals::StopSignals() : stack_(std::make_unique<char[]>(stack_bytes)) {
  stack_t stack = {};
  stack.ss_sp = stack_.get();
  stack.ss_size = stack_bytes;
  if (sigaltstack(&stack, &previous_stack) != 0)
    throw Error(concat("cannot install a signal stack: ", std::strerror(errno)));
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
  sigaltstack(&previous_stack, nullptr);
}

StopRequest StopSignals::requested() const {
  if (interrupts_seen != 0) return StopRequest::interrupt;
  return terminate_seen != 0 ? StopRequest::terminate : StopRequest::none;
}

}  // namespace tessera::train
