#include <ATen/core/Tensor.h>
#include <c10/util/Logging.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/rendezvous.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

namespace tessera::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* verdict_key = "join/verdict";  // set by rank 0: "ok", or what went wrong

std::string joined_key(int rank) { return concat("join/", rank); }

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += concat(text.empty() ? "" : ", ", rank);
  return text;
}

std::string cause_text(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return c10_error == nullptr ? error.what() : c10_error->what_without_backtrace();
}

// "tessera/ATTEMPT/": an agent that restarts its ranks keeps the store, with the keys of the failed attempt in it.
std::string run_prefix() {
  const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return concat("tessera/", attempt == nullptr ? "0" : attempt);
}

std::string host_and_pid() {
  char host[256] = "?";
  gethostname(host, sizeof host - 1);
  return concat(host, " pid ", getpid());
}

// Polls until `done()` or the deadline. Store::wait cannot be used for this: it reports a timeout, not who is missing.
template <class Done>
bool poll_until(Clock::time_point deadline, const Done& done) {
  milliseconds pause(1);
  while (!done()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(50));
  }
  return true;
}

std::vector<int> missing_ranks(c10d::Store& store, int size, const std::function<std::string(int)>& key) {
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!store.check({key(rank)})) missing.push_back(rank);
  }
  return missing;
}

// True when every rank's key is there: one request, however many ranks.
bool all_there(c10d::Store& store, int size, const std::function<std::string(int)>& key) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size; ++rank) keys.push_back(key(rank));
  return store.check(keys);
}

// Rank 0's side: waits for all, then says what is wrong ("ok" when nothing is).
std::string judge(c10d::Store& store, int size, const std::string& build, milliseconds timeout) {
  const bool all = poll_until(Clock::now() + timeout, [&] { return all_there(store, size, joined_key); });
  const std::vector<int> missing = all ? std::vector<int>{} : missing_ranks(store, size, joined_key);
  if (!missing.empty()) {
    return concat(
        size - static_cast<int>(missing.size()), " of ", size, " ranks joined within ",
        format_real(static_cast<double>(timeout.count()) / 1000, 4), " s; missing: rank ", list_of(missing),
        ". Look at the output of those ranks; check that they were started and can reach MASTER_ADDR:MASTER_PORT.");
  }
  for (int rank = 0; rank < size; ++rank) {
    const std::string theirs = store.get_to_str(joined_key(rank));
    if (theirs != build) {
      return concat("rank ", rank, " runs another build than rank 0: '", theirs, "' against '", build,
                    "'. Start the same program on every host.");
    }
  }
  return "ok";
}

// LibTorch's log of lost connections is pages of addresses, and the exceptions that follow say the same: nothing below
// `level` is logged; TORCH_CPP_LOG_LEVEL keeps everything as the user wants it.
void limit_libtorch_log(int level) {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = level;
}

bool is_ipv4_loopback(const std::string& host) { return host == "localhost" || host.rfind("127.", 0) == 0; }

// TCPStore would listen on every interface of the host; a job on one host needs only the loopback one.
int listen_on_loopback(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw Error(std::strerror(errno));
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || listen(fd, 1024) != 0) {
    const int cause = errno;
    close(fd);
    throw Error(std::strerror(cause));
  }
  return fd;
}

}  // namespace

std::string build_text() {
  return concat("tessera " TESSERA_VERSION ", LibTorch ", TORCH_VERSION, ", C++ ", __VERSION__, ", record ",
                sizeof(Entry), ", pointer ", sizeof(void*), ", long double ", sizeof(long double));
}

c10::intrusive_ptr<c10d::Store> open_store(const launch::RankEnvironment& environment, milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(environment.master_port);
  options.isServer = environment.rank == 0 && !environment.agent_hosts_store;
  options.waitWorkers = false;  // rendezvous() waits, and can name the missing
  options.timeout = timeout;
  limit_libtorch_log(c10::GLOG_FATAL);  // while connecting: each retry is an error to c10d
  const std::string where = concat(environment.master_addr, ":", environment.master_port);
  try {
    if (options.isServer && environment.store_fd >= 0) {
      options.masterListenFd = environment.store_fd;  // which takes it over
    } else if (options.isServer && is_ipv4_loopback(environment.master_addr)) {
      options.masterListenFd = listen_on_loopback(environment.master_port);
    }
    auto store = c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options);
    limit_libtorch_log(c10::GLOG_ERROR);
    return c10::make_intrusive<c10d::PrefixStore>(run_prefix(), std::move(store));
  } catch (const std::exception& error) {
    if (options.isServer) {
      throw InputError(concat("rank 0 cannot serve the rendezvous store at ", where, ": ", cause_text(error),
                              ". If the port is in use, choose another MASTER_PORT (--main_process_port)."));
    }
    throw Error(concat("rank ", environment.rank, " cannot reach the rendezvous store at ", where, " within ",
                       format_real(static_cast<double>(timeout.count()) / 1000, 4), " s: ", cause_text(error),
                       ". Rank 0 must be running there; check MASTER_ADDR, MASTER_PORT and firewalls."));
  }
}

void rendezvous(c10d::Store& store, const launch::RankEnvironment& environment, const std::string& build,
                milliseconds timeout) {
  const int rank = environment.rank;
  const std::string owner_key = concat("join/", rank, "/process");
  const std::string me = host_and_pid();
  std::string verdict;
  try {
    const std::string owner = store.compareSet(owner_key, "", me);
    if (owner != me) {
      throw Error(concat("rank ", rank, " joined twice: ", owner, " and ", me,
                         ". Two jobs share one MASTER_PORT, or RANK is set wrongly."));
    }
    store.set(joined_key(rank), build);
    if (rank == 0) {
      verdict = judge(store, environment.world_size, build, timeout);
      store.set(verdict_key, verdict);
    } else {
      store.wait({verdict_key}, timeout + milliseconds(5000));  // a little longer than rank 0, who can say more
      verdict = store.get_to_str(verdict_key);
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(concat("rank ", rank, " of ", environment.world_size, " lost the rendezvous at ",
                       environment.master_addr, ":", environment.master_port, ": ", cause_text(error),
                       ". Rank 0 may have died: look at its output."));
  }
  if (verdict != "ok") throw Error(concat("rendezvous failed: ", verdict));
}

std::optional<std::string> wait_for_key(c10d::Store& store, const std::string& key, milliseconds timeout) {
  // check() first: a wait that runs into its timeout cannot be told from a lost store.
  if (!poll_until(Clock::now() + timeout, [&] { return store.check({key}); })) return std::nullopt;
  return store.get_to_str(key);
}

std::vector<int> leave(c10d::Store& store, int rank, int size, milliseconds timeout) {
  const auto ready_key = [](int r) { return concat("leave/", r, "/ready"); };
  const auto gone_key = [](int r) { return concat("leave/", r, "/gone"); };
  const std::string all_ready = "leave/all";
  const auto deadline = Clock::now() + timeout;
  std::vector<int> missing;
  try {
    store.set(ready_key(rank), "1");
    if (rank == 0) {
      const bool all = poll_until(deadline, [&] { return all_there(store, size, ready_key); });
      if (!all) missing = missing_ranks(store, size, ready_key);
      store.set(all_ready, list_of(missing));
      store.set(gone_key(0), "1");
      if (missing.empty()) {
        poll_until(Clock::now() + milliseconds(5000), [&] { return all_there(store, size, gone_key); });
      }
    } else {
      store.wait({all_ready}, timeout + milliseconds(5000));
      store.set(gone_key(rank), "1");
    }
  } catch (const std::exception&) {
    missing.push_back(0);  // the store is gone, so its host is: there is nobody left to wait for
  }
  return missing;
}

}  // namespace tessera::comm
