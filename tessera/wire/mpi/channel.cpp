#include <tessera/base/text.h>
#include <tessera/wire/mismatch.h>
#include <tessera/wire/mpi/channel.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace tessera::wire::mpi {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr char between = '\x1f';
// A message that was sent to a rank before that left may still be on its way.
constexpr milliseconds after_departure(1000);

std::string hostname() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

std::vector<std::string> fields_of(const std::string& text) {
  std::vector<std::string> fields{""};
  for (const char c : text) {
    if (c == between) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

// Pauses between two tests: the longer the wait, the longer. A rank that shares its core must let the others run.
class Idle {
 public:
  bool looks() const { return turns_ % 8 == 0; }  ///< whether it is time for the other ranks' notices
  void pause() {
    ++turns_;
    if (turns_ < 32) return;
    if (turns_ < 4000) {
      sched_yield();
      return;
    }
    usleep(turns_ < 6000 ? 50 : 500);
  }

 private:
  int turns_ = 0;
};

// Exchanges one line of fields per rank.
std::vector<std::vector<std::string>> exchange(const Place& place, const char* what, const std::string& mine) {
  std::vector<std::vector<std::string>> all;
  for (const std::string& text : place.exchange(what, mine)) all.push_back(fields_of(text));
  return all;
}

// Loads the library on every rank: a rank that cannot is named by all, before any of them waits for it.
Library& library_of(const Place& place) {
  Library* library = nullptr;
  std::string mine;
  try {
    library = &Library::instance();
    mine = concat("yes", between, library->version());
  } catch (const Error& error) {
    mine = concat("no", between, error.what());
  }
  const auto all = exchange(place, "mpi library", mine);
  const auto me = static_cast<std::size_t>(place.rank);
  if (library == nullptr) throw Failure(Code::system, all[me].back());
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].front() != "yes") {
      throw Failure(Code::system, concat("rank ", place.ranks[r], " cannot use mpi: ", all[r].back()));
    }
    if (all[r].back() != all[me].back()) {
      throw Failure(Code::mismatch, concat("rank ", place.ranks[r], " uses ", all[r].back(), ", rank ", place.ranks[me],
                                           " ", all[me].back(), "."));
    }
  }
  library->start();
  return *library;
}

std::string seconds_since(Clock::time_point begin) {
  return format_real(std::chrono::duration<double>(Clock::now() - begin).count(), 3) + " s";
}

}  // namespace

Channel::Channel(const Place& place)
    : library_(library_of(place)),
      rank_(place.rank),
      name_(place.name),
      left_((place.rank + place.size - 1) % place.size),
      stop_requested_(place.stop_requested) {
  const auto all = exchange(place, "mpi ranks",
                            concat(library_.rank(), between, library_.size(), between, getpid(), between, hostname()));
  std::vector<int> ranks;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const int rank = static_cast<int>(parse_int(all[r].front()).value_or(-1)), size = library_.size();
    const bool twice = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    if (all[r].size() != 4 || rank < 0 || rank >= size || twice) {
      throw Failure(Code::invalid,
                    concat("'", name_, "' has ", place.size, " ranks, but ", library_.version(), " sees ", size,
                           size == 1 ? " process" : " processes",
                           ": start the program with that library's mpirun, one process per rank, without another "
                           "launcher in between."));
    }
    ranks.push_back(rank);
    members_.push_back({concat("rank ", place.ranks[r], " (pid ", all[r][2], " on ", all[r][3], ")")});
  }
  // Simultaneous calls by threads of one process need distinct tags; 16 bits of the name's hash distinguish groups.
  const int tag = static_cast<int>(std::hash<std::string>()(name_) % 32749);
  library_.check(library_.call([&](const auto& f) { return f.make_comm(ranks.data(), place.size, tag, &comm_); }),
                 concat("MPI_Comm_create_group for '", name_, "'"));
  library_.opened();
  listen(notice_tag, &notice_, sizeof notice_, -1, notice_request_);
  listen(announcement_tag, &announcement_, sizeof announcement_, left_, announcement_request_);
}

Channel::~Channel() {
  close();
  release();
}

void Channel::listen(int tag, void* data, std::size_t bytes, int source, tessera_mpi_handle& request) {
  library_.check(library_.call([&](const auto& f) {
    return f.receive(comm_, data, static_cast<std::int64_t>(bytes), source, tag, &request);
  }),
                 "MPI_Irecv");
}

bool Channel::arrived(tessera_mpi_handle& request, int& source, std::int64_t& bytes) {
  int done = 0;
  library_.check(library_.call([&](const auto& f) { return f.test(&request, &done, &source, &bytes); }), "MPI_Test");
  return done != 0;
}

// ---- notices -----------------------------------------------------------------------------------------------------

void Channel::tell(int peer, int tag, std::string bytes) {
  Outgoing& out = outgoing_.emplace_back();
  out.bytes = std::move(bytes);
  const int error = library_.call([&](const auto& f) {
    return f.send(comm_, out.bytes.data(), static_cast<std::int64_t>(out.bytes.size()), peer, tag, &out.request);
  });
  if (error != 0) outgoing_.pop_back();
  library_.check(error, "MPI_Isend");
}

void Channel::tell_all(const Notice& notice) {
  const std::size_t bytes = offsetof(Notice, text) + std::strlen(notice.text) + 1;
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    tell(r, notice_tag, std::string(reinterpret_cast<const char*>(&notice), bytes));
  }
}

void Channel::take(const Notice& notice, int source) {
  Member& member = members_[static_cast<std::size_t>(source)];
  if (notice.kind == Notice::goodbye) {
    member.left = true;
    member.finished = notice.finished;
    member.left_at = Clock::now();
  } else if (failure_code_ == Code::ok) {
    failure_code_ = static_cast<Code>(std::clamp(notice.code, 1, static_cast<int>(Code::system)));
    failure_ = concat(member.shown, " failed: ", notice.text);
  }
}

void Channel::look_locked() {
  int source = 0;
  std::int64_t bytes = 0;
  while (notice_request_ != 0 && arrived(notice_request_, source, bytes)) {
    notice_.text[sizeof notice_.text - 1] = 0;
    take(notice_, source);
    listen(notice_tag, &notice_, sizeof notice_, -1, notice_request_);
  }
  while (announcement_request_ != 0 && arrived(announcement_request_, source, bytes)) {
    if (!launch::repair(announcement_)) announcement_ = {};
    announced_.push_back(announcement_);
    listen(announcement_tag, &announcement_, sizeof announcement_, left_, announcement_request_);
  }
  for (auto out = outgoing_.begin(); out != outgoing_.end();) {
    out = arrived(out->request, source, bytes) ? outgoing_.erase(out) : std::next(out);
  }
}

void Channel::look() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock() && !closed_) look_locked();
}

void Channel::set_failure(const std::string& reason, Code code) {
  if (failure_code_ != Code::ok) return;
  failure_code_ = code;
  failure_ = reason;
  Notice notice;
  notice.code = static_cast<std::int32_t>(code);
  reason.copy(notice.text, sizeof notice.text - 1);
  tell_all(notice);
}

// Until every notice has left this process, or for that time.
void Channel::send_out(milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  for (Idle idle; !outgoing_.empty() && Clock::now() < deadline; idle.pause()) look_locked();
}

void Channel::fail(const std::string& reason, Code code) {
  const std::lock_guard lock(mutex_);
  if (closed_ || failure_code_ != Code::ok) return;
  set_failure(reason, code);
  send_out(milliseconds(200));
}

// Why it cannot end any more; "" if it can.
std::string Channel::lost(const Posted& posted) const {
  const auto now = Clock::now();
  const auto is_gone = [&](const Member& member) { return member.left && now >= member.left_at + after_departure; };
  const auto left = [](const std::string& who) {
    return who + " left the group (shutdown) while this rank waits for it, in ";
  };
  if (posted.is_message && posted.peer >= 0) {
    const Member& peer = members_[static_cast<std::size_t>(posted.peer)];
    return is_gone(peer) ? left(peer.shown) + launch::describe(posted.entry) : "";
  }
  if (posted.is_message) {
    for (int r = 0; r < size(); ++r) {
      if (r != rank_ && !is_gone(members_[static_cast<std::size_t>(r)])) return "";
    }
    return concat("all other ranks left the group (shutdown) while this rank waits for any of them, in ",
                  launch::describe(posted.entry));
  }
  for (const Member& member : members_) {
    if (member.left && member.finished < begun_) {
      return concat(left(member.shown), launch::describe(posted.entry), ". ", fewer_batches_hint);
    }
  }
  return "";
}

void Channel::throw_if_unusable(const Posted& posted) {
  const std::lock_guard lock(mutex_);
  if (closed_) throw Failure(Code::shut_down, "the group was closed by shutdown()");
  if (failure_code_ != Code::ok) throw Failure(failure_code_, failure_);
  const std::string why = lost(posted);
  if (!why.empty()) throw Failure(Code::peer_lost, why);
  throw_if_stopped();
}

void Channel::throw_if_stopped() const {
  if (!stop_requested_) return;
  if (const auto reason = stop_requested_()) throw Failure(Code::aborted, *reason);
}

void Channel::check() {
  const std::lock_guard lock(mutex_);
  if (closed_) throw Failure(Code::shut_down, "the group was closed by shutdown()");
  look_locked();
  if (failure_code_ != Code::ok) throw Failure(failure_code_, concat("the group failed before: ", failure_));
}

// ---- collectives and messages ------------------------------------------------------------------------------------

void Channel::begin(const launch::Entry& entry, milliseconds timeout) {
  const auto start = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    ++begun_;
    tell((rank_ + 1) % size(), announcement_tag, std::string(reinterpret_cast<const char*>(&entry), sizeof entry));
  }
  Posted waiting;
  waiting.entry = entry;
  for (Idle idle;; idle.pause()) {
    std::unique_lock lock(mutex_);
    if (closed_) throw Failure(Code::shut_down, "the group was closed by shutdown()");
    look_locked();
    if (failure_code_ != Code::ok) throw Failure(failure_code_, failure_);
    if (!announced_.empty()) {
      const launch::Entry theirs = announced_.front();
      announced_.pop_front();
      if (theirs.sequence == entry.sequence && theirs.fingerprint == entry.fingerprint) return;
      throw Failure(Code::mismatch, concat("the ranks started different operations: ", shown(rank_), " ",
                                           launch::describe(entry), ", ", shown(left_), " ", launch::describe(theirs)));
    }
    const std::string why = lost(waiting);
    if (!why.empty()) throw Failure(Code::peer_lost, why);
    throw_if_stopped();
    if (Clock::now() >= start + timeout) {
      throw Failure(Code::timeout, concat("waited ", seconds_since(start), " for ", shown(left_),
                                          " to start it (timeout), in ", launch::describe(entry)));
    }
  }
}

void Channel::finished() {
  const std::lock_guard lock(mutex_);
  finished_ = begun_;
}

Handle Channel::make(bool receives, int peer, int tag, std::size_t bytes, const launch::Entry& entry,
                     std::shared_ptr<void> keep) {
  const int most = library_.largest_tag() - first_message_tag;
  if (tag > most) {
    throw Failure(Code::invalid, concat(launch::op_name(entry.op), ": the tag ", tag, " is above ", most,
                                        ", the limit of ", library_.version(), "."));
  }
  auto posted = std::make_shared<Posted>();
  posted->is_message = tag >= 0;
  posted->is_receive = receives;
  posted->entry = entry;
  posted->peer = peer;
  posted->bytes = static_cast<std::int64_t>(bytes);
  posted->keep = std::move(keep);
  return posted;
}

Handle Channel::send(int peer, int tag, const void* data, std::size_t bytes, const launch::Entry& entry,
                     std::shared_ptr<void> keep) {
  Handle posted = make(false, peer, tag, bytes, entry, std::move(keep));
  library_.check(library_.call([&](const auto& f) {
    return f.send(comm_, data, posted->bytes, peer, tag < 0 ? piece_tag : tag + first_message_tag, &posted->request);
  }),
                 "MPI_Isend");
  if (posted->is_message) attend(posted);
  return posted;
}

Handle Channel::recv(int peer, int tag, void* data, std::size_t bytes, const launch::Entry& entry,
                     std::shared_ptr<void> keep) {
  Handle posted = make(true, peer, tag, bytes, entry, std::move(keep));
  library_.check(library_.call([&](const auto& f) {
    return f.receive(comm_, data, posted->bytes, peer, tag < 0 ? piece_tag : tag + first_message_tag, &posted->request);
  }),
                 "MPI_Irecv");
  if (posted->is_message) attend(posted);
  return posted;
}

bool Channel::test(Posted& posted) {
  const std::lock_guard lock(posted.mutex);
  if (!posted.done) {
    int done = 0, source = any_source;
    std::int64_t bytes = 0;
    const int error = library_.call([&](const auto& f) { return f.test(&posted.request, &done, &source, &bytes); });
    if (error == 0 && done == 0) return false;
    posted.done = true;
    posted.keep.reset();
    posted.source = source;
    try {
      library_.check(error, launch::describe(posted.entry));
      if (posted.is_receive && bytes != posted.bytes) {
        throw Failure(Code::mismatch,
                      concat("the message does not fit: ", shown(rank_), " ", launch::describe(posted.entry), ", ",
                             shown(source), " sent ", bytes, " bytes"));
      }
    } catch (const Failure&) {
      posted.failure = std::current_exception();
    }
  }
  if (posted.failure) std::rethrow_exception(posted.failure);
  return true;
}

bool Channel::wait(Posted& posted, const Patience& patience) {
  for (Idle idle;; idle.pause()) {
    if (test(posted)) return true;
    if (!idle.looks()) continue;
    look();
    throw_if_unusable(posted);
    const auto now = Clock::now();
    if (now >= patience.begin + patience.timeout) {
      throw Failure(Code::timeout, concat("waited ", seconds_since(patience.begin), " for ",
                                          posted.peer < 0 ? "another rank" : shown(posted.peer), " ", patience.what,
                                          " (timeout), in ", launch::describe(posted.entry)));
    }
    if (now >= patience.until) return false;
  }
}

// A receive that was not matched ends at once, another one soon. False if it does not.
bool Channel::cancel(tessera_mpi_handle& request) {
  if (library_.call([&](const auto& f) { return f.cancel(&request); }) != 0) return false;
  const auto deadline = Clock::now() + milliseconds(1000);
  for (Idle idle; Clock::now() < deadline; idle.pause()) {
    int done = 0;
    library_.call([&](const auto& f) { return f.test(&request, &done, nullptr, nullptr); });
    if (done != 0) return true;
  }
  return false;
}

void Channel::forget(const Handle& posted) {
  const std::lock_guard lock(posted->mutex);
  if (posted->done) return;
  if (posted->is_receive && cancel(posted->request)) {
    posted->done = true;
    posted->keep.reset();
    posted->failure = std::make_exception_ptr(Failure(Code::aborted, "the receive was given up"));
    return;
  }
  // Nothing ends it: its memory stays, and the library is not finalized.
  abandoned_ = true;
  new Handle(posted);
}

void Channel::attend(const Handle& posted) {
  const std::lock_guard lock(messages_mutex_);
  if (stop_) return;
  if (messages_.empty()) messages_changed_.notify_one();
  messages_.push_back(posted);
  if (thread_.joinable()) return;
  sigset_t all, former;
  sigfillset(&all);  // signals belong to the program's threads
  pthread_sigmask(SIG_SETMASK, &all, &former);
  thread_ = std::thread([this] { work(); });
  pthread_sigmask(SIG_SETMASK, &former, nullptr);
}

void Channel::work() {
  std::unique_lock lock(messages_mutex_);
  while (true) {
    messages_changed_.wait(lock, [&] { return stop_ || !messages_.empty(); });
    if (stop_) return;
    messages_changed_.wait_for(lock, microseconds(500), [&] { return stop_; });
    std::list<std::weak_ptr<Posted>> open = std::move(messages_);
    messages_.clear();
    lock.unlock();
    std::erase_if(open, [&](const auto& weak) {
      const Handle posted = weak.lock();
      try {
        return posted == nullptr || test(*posted);
      } catch (const std::exception&) {
        return true;  // its waiter gets it
      }
    });
    lock.lock();
    messages_.splice(messages_.begin(), open);
  }
}

void Channel::close() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    bool in_order = failure_code_ == Code::ok;
    try {
      Notice notice;
      notice.kind = Notice::goodbye;
      notice.finished = finished_;
      tell_all(notice);
      send_out(milliseconds(1000));
    } catch (const Failure&) {
      in_order = false;  // the library fails, and is not finalized when the process ends
    }
    in_order &= outgoing_.empty();
    for (tessera_mpi_handle* request : {&notice_request_, &announcement_request_}) in_order &= cancel(*request);
    in_order_ = in_order;
  }
  {
    const std::lock_guard lock(messages_mutex_);
    stop_ = true;
  }
  messages_changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Channel::release() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(released_, true)) return;
  // The library frees the communicator: MPI_Comm_free may wait for ranks that close later.
  library_.closed(in_order_ && !abandoned_);
}

}  // namespace tessera::wire::mpi
