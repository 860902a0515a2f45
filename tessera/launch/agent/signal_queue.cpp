#include <tessera/launch/agent/signal_queue.h>

#include <sys/signalfd.h>

#include <tessera/base/error.h>
#include <cerrno>
#include <cstring>

namespace tessera::launch {

SignalQueue::SignalQueue() {
  struct sigaction hangup{};
  ::sigaction(SIGHUP, nullptr, &hangup);
  sigset_t queued;
  ::sigemptyset(&queued);
  ::sigaddset(&queued, SIGINT);
  ::sigaddset(&queued, SIGTERM);
  if (hangup.sa_handler != SIG_IGN) ::sigaddset(&queued, SIGHUP);
  fd_.reset(::signalfd(-1, &queued, SFD_CLOEXEC | SFD_NONBLOCK));
  TESSERA_CHECK(fd_, "signalfd: ", std::strerror(errno));
  // The agent's parent may ignore SIGCHLD; then the kernel would reap the ranks before we see their exit.
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &standard, &child_before_);
  ::pthread_sigmask(SIG_BLOCK, &queued, &mask_before_);
}

SignalQueue::~SignalQueue() {
  while (next() != 0) {  // requests that arrive after the end of the job are dropped
  }
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  ::sigaction(SIGCHLD, &child_before_, nullptr);
}

int SignalQueue::next() noexcept {
  signalfd_siginfo info{};
  return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace tessera::launch
