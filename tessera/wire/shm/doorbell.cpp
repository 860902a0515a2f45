#include <tessera/wire/shm/doorbell.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace tessera::wire::shm {

namespace {
// Not FUTEX_PRIVATE: the word is shared between processes.
long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}
}  // namespace

void Doorbell::ring() {
  count.fetch_add(1);
  if (sleepers.load() != 0) futex(count, FUTEX_WAKE, INT_MAX, nullptr);
}

void Doorbell::sleep(std::uint32_t seen, std::chrono::nanoseconds limit) {
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(limit.count() / 1'000'000'000);
  timeout.tv_nsec = static_cast<long>(limit.count() % 1'000'000'000);
  sleepers.fetch_add(1);
  futex(count, FUTEX_WAIT, seen, &timeout);
  sleepers.fetch_sub(1);
}

}  // namespace tessera::wire::shm
