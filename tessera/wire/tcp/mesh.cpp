#include <tessera/wire/tcp/mesh.h>

#include <tessera/base/text.h>
#include <tessera/wire/mismatch.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace tessera::wire::tcp {
namespace {

constexpr std::size_t remembered = 256;  // number of collectives whose records are kept
constexpr std::size_t longest_reason = 4096;
constexpr auto announce_after = std::chrono::milliseconds(200);
constexpr std::size_t read_at_once = std::size_t{4} << 20;  // bytes read from a peer before the next peer's turn

void keep(std::map<std::uint64_t, launch::Entry>& entries, const launch::Entry& entry) {
  entries[entry.sequence] = entry;
  if (entries.size() > remembered) entries.erase(entries.begin());
}

}  // namespace

Mesh::Mesh(int rank, std::vector<launch::UniqueFd> sockets, std::vector<std::string> members)
    : rank_(rank), members_(std::move(members)), peers_(sockets.size()) {
  bell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell_) throw Failure(Code::system, concat("eventfd: ", std::strerror(errno), "."));
  for (std::size_t r = 0; r < sockets.size(); ++r) {
    peers_[r].fd = std::move(sockets[r]);
    peers_[r].finished = static_cast<int>(r) == rank_;
  }
}

Mesh::~Mesh() = default;

void Mesh::start() {
  sigset_t all, former;
  sigfillset(&all);  // signals belong to the program's threads
  pthread_sigmask(SIG_SETMASK, &all, &former);
  std::thread([self = shared_from_this()] { self->run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &former, nullptr);
}

void Mesh::wake() const {
  const std::uint64_t one = 1;
  if (write(bell_.get(), &one, sizeof one) < 0) return;  // the counter is full, so the thread is awake
}

void Mesh::queue(int peer, Header header, const launch::Entry* entry, const void* data, std::size_t bytes,
                 Handle posted) {
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  header.has_entry = entry != nullptr ? 1 : 0;
  header.bytes = bytes;
  Outgoing out;
  out.head.assign(reinterpret_cast<const char*>(&header), sizeof header);
  if (entry != nullptr) out.head.append(reinterpret_cast<const char*>(entry), sizeof *entry);
  out.data = static_cast<const std::byte*>(data);
  out.bytes = bytes;
  if (posted == nullptr && bytes > 0) {  // the caller does not keep the memory alive
    out.head.append(static_cast<const char*>(data), bytes);
    out.data = nullptr;
    out.bytes = 0;
  }
  out.posted = std::move(posted);
  if (to.finished) {  // a peer that has left needs no more data
    if (out.posted) out.posted->done = true;
    return;
  }
  to.out.push_back(std::move(out));
  if (to.out.size() > 1) return;
  flush(to);
  if (!to.out.empty()) wake();
}

void Mesh::flush(Peer& peer) {
  while (!peer.out.empty() && !peer.finished) {
    Outgoing& out = peer.out.front();
    iovec parts[2];
    int count = 0;
    if (out.sent < out.head.size()) parts[count++] = {out.head.data() + out.sent, out.head.size() - out.sent};
    const std::size_t in_data = out.sent > out.head.size() ? out.sent - out.head.size() : 0;
    if (out.bytes > in_data) {
      parts[count++] = {const_cast<std::byte*>(out.data) + in_data, out.bytes - in_data};
    }
    msghdr what{};
    what.msg_iov = parts;
    what.msg_iovlen = static_cast<std::size_t>(count);
    const ssize_t n = count == 0 ? 0 : sendmsg(peer.fd.get(), &what, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) lose(peer);
      return;
    }
    out.sent += static_cast<std::size_t>(n);
    if (out.sent < out.head.size() + out.bytes) continue;
    if (out.posted) {
      out.posted->done = true;
      changed_.notify_all();
    }
    peer.out.pop_front();
  }
}

void Mesh::lose(Peer& peer) {
  if (peer.finished) return;
  peer.finished = true;
  peer.gone = !peer.left;
  for (Outgoing& out : peer.out) {
    if (out.posted && peer.left) out.posted->done = true;
  }
  peer.out.clear();
  peer.fd.reset();
  changed_.notify_all();
}

// The posted receive that matches a frame, if any.
Handle Mesh::match(int peer, const Header& header) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  if (header.kind == piece) {
    if (from.waiting.empty()) return nullptr;
    Handle posted = from.waiting.front();
    from.waiting.pop_front();
    return posted;
  }
  const auto found = std::find_if(messages_wanted_.begin(), messages_wanted_.end(), [&](const Handle& wanted) {
    return wanted->tag == header.tag && (wanted->peer == any_source || wanted->peer == peer);
  });
  if (found == messages_wanted_.end()) return nullptr;
  Handle posted = *found;
  messages_wanted_.erase(found);
  return posted;
}

void Mesh::mismatch(int peer, const launch::Entry& mine, const Header& theirs) {
  const auto& told = peers_[static_cast<std::size_t>(peer)].told;
  const auto entry = told.find(theirs.sequence);
  set_failure(concat("the ranks started different operations: ", members_[static_cast<std::size_t>(rank_)], " ",
                     launch::describe(mine), ", ", members_[static_cast<std::size_t>(peer)], " ",
                     entry != told.end() ? launch::describe(entry->second) : concat("number ", theirs.sequence)),
              Code::mismatch, true);
}

void Mesh::compare(int peer, std::uint64_t sequence) {
  const auto& told = peers_[static_cast<std::size_t>(peer)].told;
  const auto theirs = told.find(sequence);
  const auto mine = mine_.find(sequence);
  if (theirs == told.end() || mine == mine_.end()) return;
  if (theirs->second.fingerprint == mine->second.fingerprint) return;
  Header header;
  header.sequence = sequence;
  mismatch(peer, mine->second, header);
}

void Mesh::take_head(int peer) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  const Header header = from.header;
  launch::Entry entry;
  if (header.has_entry != 0) {
    std::memcpy(static_cast<void*>(&entry), from.head.data() + sizeof header, sizeof entry);
    if (!launch::repair(entry)) {
      lose(from);
      return;
    }
    if (header.kind != message) {
      keep(from.told, entry);
      compare(peer, entry.sequence);
    }
  }
  from.got = 0;
  from.in_payload = true;
  from.target = nullptr;
  from.arriving = nullptr;
  if (header.kind == piece || header.kind == message) {
    from.target = match(peer, header);
    if (from.target) {
      const launch::Entry& mine = from.target->entry;
      const bool same =
          header.kind == piece ? header.fingerprint == mine.fingerprint : std::strcmp(entry.dtype, mine.dtype) == 0;
      if (same && header.bytes == from.target->bytes) return;
      if (header.kind == message) {
        set_failure(
            concat("the message does not fit: ", members_[static_cast<std::size_t>(rank_)], " ", launch::describe(mine),
                   ", ", members_[static_cast<std::size_t>(peer)], " ", launch::describe(entry)),
            Code::mismatch, true);
      } else {
        mismatch(peer, mine, header);
      }
      from.target = nullptr;
    }
  }
  from.arriving = std::make_shared<Arrived>();
  from.arriving->header = header;
  from.arriving->source = peer;
  // The message's entry is stored in front of its data.
  if (header.kind == message) from.arriving->data.resize(sizeof entry);
  if (header.kind == message) std::memcpy(from.arriving->data.data(), static_cast<const void*>(&entry), sizeof entry);
  from.arriving->data.resize(from.arriving->data.size() + header.bytes);
}

void Mesh::take_payload(int peer) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  from.in_payload = false;
  from.head.clear();
  if (from.target) {
    from.target->done = true;
    from.target->source = peer;
    from.target = nullptr;
    changed_.notify_all();
    return;
  }
  const auto arrived = std::exchange(from.arriving, nullptr);
  arrived->whole = true;
  switch (arrived->header.kind) {
    case piece:
    case message: {
      // The receive may have been posted while the data was arriving.
      if (const Handle posted = match(peer, arrived->header)) {
        deliver(posted, *arrived);
      } else {
        (arrived->header.kind == piece ? from.pieces : messages_).push_back(arrived);
      }
      return;
    }
    case failure: {
      const std::string text(reinterpret_cast<const char*>(arrived->data.data()), arrived->data.size());
      set_failure(concat(members_[static_cast<std::size_t>(peer)], " failed: ", text),
                  static_cast<Code>(std::clamp(arrived->header.code, 1, static_cast<int>(Code::system))), false);
      return;
    }
    case goodbye:
      from.left = true;
      changed_.notify_all();
      return;
    default:
      return;
  }
}

// Delivers stored data to a posted receive. Returns false if it does not fit.
bool Mesh::deliver(const Handle& posted, Arrived& arrived) {
  const bool is_message = arrived.header.kind == message;
  const std::size_t skip = is_message ? sizeof(launch::Entry) : 0;
  launch::Entry entry;
  if (is_message) std::memcpy(static_cast<void*>(&entry), arrived.data.data(), sizeof entry);
  const bool same = is_message ? std::strcmp(entry.dtype, posted->entry.dtype) == 0
                               : arrived.header.fingerprint == posted->entry.fingerprint;
  if (!same || arrived.header.bytes != posted->bytes) {
    if (is_message) {
      set_failure(concat("the message does not fit: ", members_[static_cast<std::size_t>(rank_)], " ",
                         launch::describe(posted->entry), ", ", members_[static_cast<std::size_t>(arrived.source)], " ",
                         launch::describe(entry)),
                  Code::mismatch, true);
    } else {
      mismatch(arrived.source, posted->entry, arrived.header);
    }
    return false;
  }
  if (posted->bytes > 0) std::memcpy(posted->data, arrived.data.data() + skip, posted->bytes);
  posted->source = arrived.source;
  posted->done = true;
  changed_.notify_all();
  return true;
}

void Mesh::receive(int peer) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  std::size_t budget = read_at_once;
  while (!from.finished && budget > 0) {
    if (from.in_payload) {
      const std::size_t left = from.header.bytes - from.got;
      if (left == 0) {
        take_payload(peer);
        continue;
      }
      std::byte* to = nullptr;
      if (from.target) {
        to = from.target->data + from.got;
      } else {
        auto& data = from.arriving->data;
        to = data.data() + (data.size() - from.header.bytes) + from.got;
      }
      const ssize_t n = ::recv(from.fd.get(), to, std::min(left, budget), MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n <= 0) return lose(from);
      from.got += static_cast<std::size_t>(n);
      budget -= static_cast<std::size_t>(n);
      continue;
    }
    std::size_t wanted = sizeof(Header);
    if (from.head.size() >= sizeof(Header)) {
      std::memcpy(static_cast<void*>(&from.header), from.head.data(), sizeof(Header));
      const bool valid = from.header.magic == Header{}.magic && from.header.kind <= goodbye &&
                         from.header.bytes <= (std::uint64_t{1} << 46) &&
                         (from.header.kind != failure || from.header.bytes <= longest_reason) &&
                         (from.header.kind != message || from.header.has_entry != 0);
      if (!valid) return lose(from);
      if (from.header.has_entry != 0) wanted += sizeof(launch::Entry);
      if (from.head.size() == wanted) {
        take_head(peer);
        continue;
      }
    }
    char bytes[sizeof(Header) + sizeof(launch::Entry)];
    const ssize_t n = ::recv(from.fd.get(), bytes, wanted - from.head.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) return lose(from);
    from.head.append(bytes, static_cast<std::size_t>(n));
  }
}

bool Mesh::all_finished() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.finished; });
}

void Mesh::run() {
  std::vector<pollfd> ready;
  std::vector<int> ranks;
  while (true) {
    ready.assign(1, {bell_.get(), POLLIN, 0});
    ranks.assign(1, -1);
    {
      const std::lock_guard lock(mutex_);
      if (all_finished()) return;
      for (int r = 0; r < size(); ++r) {
        const Peer& peer = peers_[static_cast<std::size_t>(r)];
        if (peer.finished) continue;
        ready.push_back({peer.fd.get(), static_cast<short>(peer.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
        ranks.push_back(r);
      }
    }
    if (poll(ready.data(), ready.size(), 1000) < 0 && errno != EINTR) return;
    const std::lock_guard lock(mutex_);
    if ((ready[0].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      if (read(bell_.get(), &count, sizeof count) < 0) count = 0;  // another thread has already read it
    }
    for (std::size_t i = 1; i < ready.size(); ++i) {
      Peer& peer = peers_[static_cast<std::size_t>(ranks[i])];
      if (ready[i].revents == 0 || peer.finished) continue;
      try {
        if ((ready[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) receive(ranks[i]);
      } catch (const std::exception& error) {  // no memory for the peer's data
        set_failure(error.what(), Code::system, true);
        lose(peer);
      }
      flush(peer);
      if (closed_ && !peer.finished && peer.out.empty()) shutdown(peer.fd.get(), SHUT_WR);
    }
  }
}

void Mesh::set_failure(const std::string& reason, Code code, bool tell) {
  if (failure_code_ != Code::ok || closed_) return;
  failure_code_ = code;
  failure_ = reason;
  changed_.notify_all();
  if (!tell) return;
  Header header;
  header.kind = failure;
  header.code = static_cast<std::int32_t>(code);
  const std::string text = reason.substr(0, longest_reason);
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) queue(r, header, nullptr, text.data(), text.size(), nullptr);
  }
}

void Mesh::fail(const std::string& reason, Code code) {
  const std::lock_guard lock(mutex_);
  set_failure(reason, code, true);
}

// Throws if nothing more can arrive from this peer (any_source: from any peer).
void Mesh::throw_if_unusable(int peer) const {
  if (closed_) throw Failure(Code::shut_down, "the group was closed by shutdown()");
  if (failure_code_ != Code::ok) throw Failure(failure_code_, failure_);
  for (int r = 0; r < size(); ++r) {
    if (peers_[static_cast<std::size_t>(r)].gone) {
      throw Failure(Code::peer_lost, concat(members_[static_cast<std::size_t>(r)], " is gone: its connection broke"));
    }
  }
}

void Mesh::check() {
  const std::lock_guard lock(mutex_);
  throw_if_unusable(any_source);
}

void Mesh::announce(const launch::Entry& entry) {
  Header header;
  header.kind = announcement;
  header.sequence = entry.sequence;
  header.fingerprint = entry.fingerprint;
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) queue(r, header, &entry, nullptr, 0, nullptr);
  }
}

void Mesh::begin(const launch::Entry& entry) {
  const std::lock_guard lock(mutex_);
  throw_if_unusable(any_source);
  keep(mine_, entry);
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) compare(r, entry.sequence);
  }
  throw_if_unusable(any_source);
}

Handle Mesh::send(int peer, int tag, const void* data, std::size_t bytes, const launch::Entry& entry) {
  auto posted = std::make_shared<Posted>();
  posted->entry = entry;
  posted->peer = peer;
  posted->bytes = bytes;
  Header header;
  header.kind = tag < 0 ? piece : message;
  header.tag = tag;
  header.sequence = entry.sequence;
  header.fingerprint = entry.fingerprint;
  const std::lock_guard lock(mutex_);
  throw_if_unusable(peer);
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  const bool tell = tag >= 0 || to.told_to != entry.sequence;
  if (tag < 0) to.told_to = entry.sequence;
  queue(peer, header, tell ? &entry : nullptr, data, bytes, posted);
  return posted;
}

Handle Mesh::recv(int peer, int tag, void* data, std::size_t bytes, const launch::Entry& entry) {
  auto posted = std::make_shared<Posted>();
  posted->entry = entry;
  posted->peer = peer;
  posted->tag = tag;
  posted->data = static_cast<std::byte*>(data);
  posted->bytes = bytes;
  const std::lock_guard lock(mutex_);
  throw_if_unusable(peer);
  if (tag < 0) {
    Peer& from = peers_[static_cast<std::size_t>(peer)];
    if (from.pieces.empty()) {
      from.waiting.push_back(posted);
    } else {
      const auto arrived = from.pieces.front();
      from.pieces.pop_front();
      deliver(posted, *arrived);
    }
    return posted;
  }
  const auto found = std::find_if(messages_.begin(), messages_.end(), [&](const auto& arrived) {
    return arrived->header.tag == tag && (peer == any_source || arrived->source == peer);
  });
  if (found == messages_.end()) {
    messages_wanted_.push_back(posted);
  } else {
    const auto arrived = *found;
    messages_.erase(found);
    deliver(posted, *arrived);
  }
  return posted;
}

void Mesh::forget(const Handle& posted) {
  const std::lock_guard lock(mutex_);
  if (posted->done) return;
  std::erase(messages_wanted_, posted);
  for (Peer& peer : peers_) {
    std::erase(peer.waiting, posted);
    if (peer.target == posted) {  // the rest is read and discarded
      peer.arriving = std::make_shared<Arrived>();
      peer.arriving->header = peer.header;
      peer.arriving->data.resize(peer.header.bytes);
      peer.target = nullptr;
    }
    for (Outgoing& out : peer.out) {
      if (out.posted != posted) continue;
      out.head.append(reinterpret_cast<const char*>(out.data), out.bytes);
      out.data = nullptr;
      out.bytes = 0;
      out.posted = nullptr;
    }
  }
}

bool Mesh::wait(const Handle& posted, const Patience& patience) {
  std::unique_lock lock(mutex_);
  const auto deadline = patience.begin + patience.timeout;
  bool announced = false;
  const int peer = posted->peer;
  while (!posted->done) {
    throw_if_unusable(peer);
    const auto now = Clock::now();
    if (peer != any_source && peers_[static_cast<std::size_t>(peer)].left &&
        peers_[static_cast<std::size_t>(peer)].finished) {
      throw Failure(Code::peer_lost, concat(members_[static_cast<std::size_t>(peer)],
                                            " left the group (shutdown) while this rank waits for it ", patience.what,
                                            ". ", fewer_batches_hint));
    }
    if (peer == any_source && all_finished()) {
      throw Failure(Code::peer_lost, concat("all other ranks left the group (shutdown) while this rank waits for any ",
                                            "of them ", patience.what));
    }
    if (now >= deadline) {
      throw Failure(Code::timeout,
                    concat("waited ", format_real(std::chrono::duration<double>(now - patience.begin).count(), 3),
                           " s for ", peer == any_source ? "any rank" : members_[static_cast<std::size_t>(peer)], " ",
                           patience.what, " (timeout), in ", launch::describe(posted->entry)));
    }
    if (now >= patience.until) return false;
    auto next = std::min(deadline, patience.until);
    if (posted->tag < 0 && !announced) {
      if (now - patience.begin >= announce_after) {
        announce(posted->entry);
        announced = true;
      } else {
        next = std::min(next, patience.begin + announce_after);
      }
    }
    changed_.wait_until(lock, std::min(next, now + std::chrono::hours(1)));
  }
  return true;
}

void Mesh::close() {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  Header header;
  header.kind = goodbye;
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) queue(r, header, nullptr, nullptr, 0, nullptr);
  }
  closed_ = true;
  messages_wanted_.clear();
  for (Peer& peer : peers_) {
    peer.waiting.clear();
    peer.target = nullptr;
    if (peer.in_payload && !peer.arriving) {
      peer.arriving = std::make_shared<Arrived>();
      peer.arriving->header = peer.header;
      peer.arriving->data.resize(peer.header.bytes);
    }
    if (!peer.finished && peer.out.empty()) shutdown(peer.fd.get(), SHUT_WR);
    for (Outgoing& out : peer.out) {  // do not touch the callers' memory any more
      out.head.append(reinterpret_cast<const char*>(out.data), out.bytes);
      out.data = nullptr;
      out.bytes = 0;
      out.posted = nullptr;
    }
  }
  changed_.notify_all();
  wake();
}

}  // namespace tessera::wire::tcp
