#include <ATen/core/Tensor.h>
#include <c10/util/Logging.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/system/endpoint.h>
#include <tessera/base/system/host_name.h>
#include <tessera/comm/c10d/agent_store.h>
#include <tessera/comm/cause.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/rendezvous.h>
#include <tessera/comm/watch.h>
#include <tessera/launch/fleet/rank_list.h>
#include <tessera/launch/store/store_server.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <thread>

namespace tessera::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* verdict_key = "join/verdict";    // set by rank 0: "ok", or the error
constexpr std::string_view given_wrongly = "given: ";  // prefix of verdicts that a restart would not change
constexpr const char* count_key = "join/count";
constexpr milliseconds first_report(5000), next_report(10000);  // delays before reports of missing ranks
constexpr milliseconds more_culprits(300);  // how long to look for further differing ranks after the first

std::string joined_key(int rank) { return concat("join/", rank); }
std::string owner_key(int rank) { return concat("join/", rank, "/process"); }
std::string order_key(std::int64_t place) { return concat("join/order/", place); }  // the place-th rank to join

// An agent that restarts its ranks keeps the store, including the failed attempt's keys.
std::string run_prefix(const launch::RankEnvironment& environment) {
  const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  if (environment.launcher == "torchrun" && attempt != nullptr) return concat("tessera/", attempt);
  std::string prefix = launch::generation_prefix(environment.generation);
  prefix.pop_back();  // PrefixStore appends the slash itself
  return prefix;
}

std::string host_and_pid() { return concat(host_name("?"), " pid ", getpid()); }

// Polls until `done()` or the deadline. Store::wait reports only that it timed out, not which ranks are missing.
template <class Done>
bool poll_until(Clock::time_point deadline, const Done& done, milliseconds longest_pause = milliseconds(50)) {
  milliseconds pause(1);
  while (!done()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, longest_pause);
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

// True if every rank's key exists. Sends one request, whatever the number of ranks.
bool all_there(c10d::Store& store, int size, const std::function<std::string(int)>& key) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size; ++rank) keys.push_back(key(rank));
  return store.check(keys);
}

std::string seconds_text(milliseconds time) { return format_real(static_cast<double>(time.count()) / 1000, 4) + " s"; }

// The remedy if variables are left over from a shell or a pod.
std::string left_behind(const launch::RankEnvironment& environment) {
  if (environment.unvouched.empty()) return {};
  return concat(" ", environment.unvouched,
                " are set in the environment, but not by a known launcher: "
                "unset them, as well as MASTER_ADDR and MASTER_PORT, to run a single rank, or start the other ranks.");
}

// "waited 5 s for ranks 2, 3 of 4; here: ranks 0, 1 on node1".
void report_missing(c10d::Store& store, const launch::RankEnvironment& environment, milliseconds waited) {
  const int size = environment.world_size;
  std::vector<int> missing;
  std::map<std::string, std::vector<int>> here;  // by host
  for (int rank = 0; rank < size; ++rank) {
    if (!store.check({joined_key(rank)})) {
      missing.push_back(rank);
      continue;
    }
    const std::string process = store.get_to_str(owner_key(rank));
    here[process.substr(0, process.find(' '))].push_back(rank);
  }
  if (missing.empty()) return;
  std::string hosts;
  for (const auto& [host, ranks] : here)
    hosts += concat(hosts.empty() ? "" : "; ", launch::ranks_text(ranks), " on ", host);
  log::warning("rendezvous: waited ", seconds_text(waited), " for ", launch::ranks_text(missing), " of ", size,
               "; here: ", hosts.empty() ? "no rank" : hosts,
               ". Check the output of the missing ranks, and whether their hosts were started.",
               left_behind(environment));
}

// Our agent knows its host's processes and reports more about them.
bool agent_reports(const launch::RankEnvironment& environment) {
  return environment.board_fd >= 0 && environment.local_world_size == environment.world_size;
}

// Reports the missing ranks at intervals.
class Reporter {
 public:
  Reporter(c10d::Store& store, const launch::RankEnvironment& environment)
      : store_(store), environment_(environment), silent_(agent_reports(environment)) {}
  Clock::time_point next() const { return next_; }
  void skip() {
    if (Clock::now() >= next_) next_ += next_report;
  }
  void look() {
    const auto now = Clock::now();
    if (now < next_) return;
    next_ += next_report;
    if (!silent_) report_missing(store_, environment_, std::chrono::duration_cast<milliseconds>(now - begin_));
  }

 private:
  c10d::Store& store_;
  const launch::RankEnvironment& environment_;
  bool silent_;
  Clock::time_point begin_ = Clock::now(), next_ = begin_ + first_report;
};

std::optional<std::string> different(const std::map<int, Fingerprint>& joined) {
  for (const auto& [rank, facts] : joined) {
    const std::string mine = joined.at(0).at(0).second, theirs = facts.empty() ? "nothing" : facts[0].second;
    if (theirs == mine) continue;
    return concat("rank ", rank, " runs a different build from rank 0: '", theirs, "' instead of '", mine,
                  "'. Start the same program on every host.");
  }
  const auto what = differences(joined);
  if (!what) return std::nullopt;
  return concat("the ranks were started with different settings: ", *what,
                ". Start every rank with the same arguments and files.");
}

// Rank 0's side: waits for all ranks, comparing each as it joins. Returns the error, or "ok".
std::string judge(c10d::Store& store, const launch::RankEnvironment& environment, milliseconds timeout) {
  const int size = environment.world_size;
  auto deadline = Clock::now() + timeout;
  Reporter reporter(store, environment);
  std::map<int, Fingerprint> joined = {{0, from_text(store.get_to_str(joined_key(0)))}};
  std::optional<std::string> difference;
  for (std::int64_t place = 1; place <= size; ++place) {
    const bool came = poll_until(
        deadline,
        [&] {
          if (!difference) reporter.look();
          return store.check({order_key(place)});
        },
        milliseconds(10));
    if (!came) break;
    const auto rank = parse_int(store.get_to_str(order_key(place)));
    TESSERA_CHECK(rank && *rank >= 0 && *rank < size, "rendezvous: place ", place, " of the store");
    try {
      joined[static_cast<int>(*rank)] = from_text(store.get_to_str(joined_key(static_cast<int>(*rank))));
    } catch (const Error& error) {
      return concat("rank ", *rank, ": ", error.what());
    }
    const bool first = !difference;
    difference = different(joined);
    if (difference && first) deadline = std::min<Clock::time_point>(deadline, Clock::now() + more_culprits);
  }
  if (difference) return concat(given_wrongly, *difference);
  const std::vector<int> missing = missing_ranks(store, size, joined_key);
  if (missing.empty()) return "ok";
  return concat(
      size - static_cast<int>(missing.size()), " of ", size, " ranks joined within ", seconds_text(timeout),
      "; missing: rank ", launch::list_ranks(missing),
      ". Look at the output of those ranks; check that they were started and can reach MASTER_ADDR:MASTER_PORT.",
      left_behind(environment));
}

// The other ranks' side. If rank 0 has not joined, the lowest rank that has joined reports the missing ones.
std::string await_verdict(c10d::Store& store, const launch::RankEnvironment& environment, milliseconds timeout) {
  const int rank = environment.rank;
  const auto deadline = Clock::now() + timeout;
  Reporter reporter(store, environment);
  for (;;) {
    const auto begin = Clock::now();
    const auto slice = std::chrono::ceil<milliseconds>(std::min(reporter.next(), deadline) - begin);
    try {
      store.wait({verdict_key}, std::max(slice, milliseconds(1)));
      return store.get_to_str(verdict_key);
    } catch (const c10::DistStoreError&) {
      const auto end = Clock::now();
      if (end >= deadline || end - begin < slice / 2) throw;  // the deadline has passed, or the error was not a timeout
    }
    bool first = true;
    for (int other = 0; other < rank && first; ++other) first = !store.check({joined_key(other)});
    first ? reporter.look() : reporter.skip();
  }
}

// LibTorch logs pages of addresses for a lost connection, and the exceptions that follow contain the same facts. Raises
// its log level to `level`, unless the user set TORCH_CPP_LOG_LEVEL.
void limit_libtorch_log(int level) {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = level;
}

bool is_ipv4_loopback(const std::string& host) { return host == "localhost" || host.rfind("127.", 0) == 0; }

// TCPStore would listen on every interface; a job on one host needs only the loopback interface.
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

namespace {

c10::intrusive_ptr<c10d::Store> open_agent_store(const launch::RankEnvironment& environment, milliseconds timeout) {
  launch::StoreClientOptions options;
  options.host = environment.store_address;
  options.port = environment.store_port;
  options.secret = launch::secret_from_fd(environment.secret_fd);
  options.generation = environment.generation;
  options.connect_timeout = timeout;
  options.interrupted = stop_requested;
  try {
    return c10::make_intrusive<AgentStore>(std::make_shared<launch::StoreClient>(std::move(options)), timeout);
  } catch (const Error& error) {
    throw Error(concat("rank ", environment.rank, " cannot join the job: ", error.what()));
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> open_store(const launch::RankEnvironment& environment, milliseconds timeout) {
  if (!environment.store_address.empty()) {
    return c10::make_intrusive<c10d::PrefixStore>(run_prefix(environment), open_agent_store(environment, timeout));
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(environment.master_port);
  options.isServer = environment.rank == 0 && !environment.agent_hosts_store;
  options.waitWorkers = false;  // rendezvous() waits instead, and can name missing ranks
  options.timeout = timeout;
  limit_libtorch_log(c10::GLOG_FATAL);  // while connecting: c10d logs each retry as an error
  const std::string where = endpoint_text(environment.master_addr, environment.master_port);
  try {
    if (options.isServer && environment.store_fd >= 0) {
      options.masterListenFd = environment.store_fd;  // the store takes ownership
    } else if (options.isServer && is_ipv4_loopback(environment.master_addr)) {
      options.masterListenFd = listen_on_loopback(environment.master_port);
    }
    auto store = c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options);
    limit_libtorch_log(c10::GLOG_ERROR);
    if (environment.rank == 0 && environment.launcher == "torchrun") {
      log::info("rendezvous: using torchrun's store at ", where, ", served by ",
                environment.agent_hosts_store ? "torchrun's agent" : "rank 0", " (c10d::TCPStore, not authenticated)");
    }
    return c10::make_intrusive<c10d::PrefixStore>(run_prefix(environment), std::move(store));
  } catch (const std::exception& error) {
    if (options.isServer) {
      throw InputError(concat("rank 0 cannot serve the rendezvous store at ", where, ": ", cause_text(error),
                              ". If the port is in use, choose another MASTER_PORT (--main_process_port)."));
    }
    throw Error(concat("rank ", environment.rank, " cannot reach the rendezvous store at ", where, " within ",
                       format_real(static_cast<double>(timeout.count()) / 1000, 4), " s: ", cause_text(error),
                       ". Rank 0 must be running there; check MASTER_ADDR, MASTER_PORT and firewalls.",
                       left_behind(environment)));
  }
}

void rendezvous(c10d::Store& store, const launch::RankEnvironment& environment, const std::string& build,
                milliseconds timeout, const Fingerprint& facts) {
  const int rank = environment.rank, size = environment.world_size;
  const std::string me = host_and_pid();
  std::string verdict;
  try {
    const std::string owner = store.compareSet(owner_key(rank), "", me);
    if (owner != me) {
      throw Error(concat("rank ", rank, " joined twice: ", owner, " and ", me,
                         ". Two jobs share one MASTER_PORT, or RANK is set wrongly."));
    }
    Fingerprint all = {{"build", build}};
    all.insert(all.end(), facts.begin(), facts.end());
    store.set(joined_key(rank), to_text(all));
    store.set(order_key(store.add(count_key, 1)), std::to_string(rank));
    if (rank == 0) {
      verdict = judge(store, environment, timeout);
      store.set(verdict_key, verdict);
    } else {
      verdict = await_verdict(store, environment, timeout + milliseconds(5000));  // rank 0's verdict has more details:
                                                                                  // wait longer than it does
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const bool agent = !environment.store_address.empty();
    throw Error(concat("rank ", rank, " of ", size, " lost the rendezvous at ",
                       agent ? environment.store_address : environment.master_addr, ":",
                       agent ? environment.store_port : environment.master_port, ": ", cause_text(error),
                       ". Rank 0 may have died: look at its output."));
  }
  if (verdict == "ok") return;
  if (std::string_view(verdict).starts_with(given_wrongly)) {
    throw InputError(concat("rendezvous failed: ", verdict.substr(given_wrongly.size())));
  }
  throw Error(concat("rendezvous failed: ", verdict));
}

std::optional<std::string> wait_for_key(c10d::Store& store, const std::string& key, milliseconds timeout) {
  // check() first: get() reports its timeout like a lost store.
  if (!poll_until(Clock::now() + timeout, [&] { return store.check({key}); })) return std::nullopt;
  return store.get_to_str(key);
}

std::vector<std::string> exchange_texts(c10d::Store& store, const std::string& question, int rank, int size,
                                        const std::string& mine, milliseconds timeout) {
  const auto key = [&](int r) { return concat("exchange/", question, "/", r); };
  store.set(key(rank), mine);
  std::vector<std::string> texts;
  for (int r = 0; r < size; ++r) {
    auto theirs = wait_for_key(store, key(r), timeout);
    if (!theirs) {
      throw Error(concat("rank ", r, " did not publish its ", question, " within ",
                         format_real(static_cast<double>(timeout.count()) / 1000, 4), " s"));
    }
    texts.push_back(std::move(*theirs));
  }
  return texts;
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
      store.set(all_ready, launch::list_ranks(missing));
      store.set(gone_key(0), "1");
      if (missing.empty()) {
        poll_until(Clock::now() + milliseconds(5000), [&] { return all_there(store, size, gone_key); });
      }
    } else {
      store.wait({all_ready}, timeout + milliseconds(5000));
      store.set(gone_key(rank), "1");
    }
  } catch (const std::exception&) {
    missing.push_back(0);  // the store is gone, and so is its host: no rank is left to wait for
  }
  return missing;
}

}  // namespace tessera::comm
