#include <tessera/base/error.h>
#include <tessera/comm/shm/mailbox.h>

#include <signal.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

namespace tessera::comm::shm {

using launch::Op;

namespace {
constexpr std::uint64_t most_spare_bytes = std::uint64_t{256} << 20;
constexpr std::size_t stream_from = 4 << 20;

bool is_send(const Letter& letter) { return letter.operation.entry.op == Op::send; }

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes >= stream_from) {
    kernels::stream_copy(to, from, static_cast<std::int64_t>(bytes));
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

std::byte* Mailbox::buffer(std::uint64_t bytes, std::uint64_t& got) {
  const auto spare = spare_.lower_bound(bytes);
  if (spare != spare_.end() && spare->first <= 4 * bytes + 65536) {
    got = spare->first;
    std::byte* piece = spare->second;
    spare_bytes_ -= got;
    spare_.erase(spare);
    return piece;
  }
  got = std::bit_ceil(std::max<std::uint64_t>(bytes, 4096));
  return communicator_.segment().allocate(got);
}

bool Mailbox::place(Letter& letter) {
  Control& control = communicator_.control();
  MessageSlot* free = nullptr;
  for (MessageSlot& slot : control.messages) {
    if (slot.state.load(std::memory_order_acquire) == MessageState::free) free = &slot;
  }
  if (free == nullptr) return false;
  const Operation& operation = letter.operation;
  if (const auto offset = communicator_.segment().offset_in_arena(operation.output, operation.part_bytes)) {
    free->offset = *offset;
  } else {
    letter.copy = buffer(operation.part_bytes, letter.copy_bytes);
    copy_bytes(letter.copy, operation.output, operation.part_bytes);
    free->offset = communicator_.segment().offset(letter.copy);
  }
  free->bytes = operation.part_bytes;
  free->destination = operation.root;
  free->tag = operation.tag;
  free->number = next_number_++;
  free->entry = operation.entry;
  letter.slot = free;
  publish_stores();
  free->state.store(MessageState::posted, std::memory_order_release);
  communicator_.control(operation.root).bell.ring();
  return true;
}

// The receiver has spoken: the slot and the buffer are free again.
void Mailbox::take_back(Letter& letter) {
  const MessageState state = letter.slot->state.load(std::memory_order_acquire);
  if (state == MessageState::posted) return;
  if (state == MessageState::refused) {
    const char(&reason)[sizeof(Control::reason)] = communicator_.control(letter.operation.root).reason;  // told before
    letter.error = std::string(reason, strnlen(reason, sizeof reason));
    communicator_.fail(letter.error);
  }
  if (letter.copy != nullptr) {
    if (spare_bytes_ + letter.copy_bytes <= most_spare_bytes) {
      spare_.emplace(letter.copy_bytes, letter.copy);
      spare_bytes_ += letter.copy_bytes;
    } else {
      communicator_.segment().free(letter.copy);
    }
  }
  letter.slot->state.store(MessageState::free, std::memory_order_release);
  letter.slot = nullptr;
  letter.copy = nullptr;
  letter.operation.keep.reset();
  letter.ended = true;
}

void Mailbox::receive(Letter& letter) {
  const Operation& operation = letter.operation;
  Control& theirs = communicator_.control(operation.root);
  MessageSlot* first = nullptr;
  for (MessageSlot& slot : theirs.messages) {
    if (slot.state.load(std::memory_order_acquire) != MessageState::posted ||
        slot.destination != communicator_.rank() || slot.tag != operation.tag) {
      continue;
    }
    if (first == nullptr || slot.number < first->number) first = &slot;
  }
  if (first == nullptr) return;
  const bool same_type = std::strncmp(first->entry.dtype, operation.entry.dtype, sizeof operation.entry.dtype) == 0;
  if (first->bytes != operation.part_bytes || !same_type) {
    letter.error = concat("the message does not fit: ", communicator_.member_text(communicator_.rank()), " ",
                          launch::describe(operation.entry), ", ", communicator_.member_text(operation.root), " ",
                          launch::describe(launch::Entry(first->entry)));
    communicator_.fail(letter.error);
    first->state.store(MessageState::refused, std::memory_order_release);
  } else {
    copy_bytes(operation.output, communicator_.at(operation.root, first->offset, first->bytes), first->bytes);
    publish_stores();
    first->state.store(MessageState::taken, std::memory_order_release);
  }
  theirs.bell.ring();
  letter.operation.keep.reset();
  letter.ended = true;
}

// Whatever can be done now. Messages between the same ranks with the same tag stay in order.
void Mailbox::move() {
  for (const auto& letter : sends_) {
    if (letter->slot != nullptr) take_back(*letter);
  }
  std::erase_if(sends_, [](const auto& letter) { return letter->ended; });
  for (const auto& letter : sends_) {
    if (letter->slot == nullptr && !place(*letter)) break;
  }
  std::set<std::pair<int, int>> waiting;
  for (const auto& letter : receives_) {
    const std::pair<int, int> from(letter->operation.root, letter->operation.tag);
    if (waiting.count(from) != 0) continue;
    receive(*letter);
    if (!letter->ended) waiting.insert(from);
  }
  std::erase_if(receives_, [](const auto& letter) { return letter->ended; });
}

std::shared_ptr<Letter> Mailbox::start(Operation operation) {
  communicator_.throw_if_failed();
  communicator_.note_thread();
  auto letter = std::make_shared<Letter>(std::move(operation));
  const std::lock_guard lock(mutex_);
  if (stop_) throw Error("the group was closed by shutdown()");
  (is_send(*letter) ? sends_ : receives_).push_back(letter);
  move();
  if (!letter->ended && !thread_.joinable()) {
    sigset_t all, former;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    thread_ = std::thread([this] { serve(); });
    pthread_sigmask(SIG_SETMASK, &former, nullptr);
  }
  return letter;
}

// Sleeps on this rank's bell and moves what can be moved, for messages that nobody waits for.
void Mailbox::serve() {
  Doorbell& bell = communicator_.control().bell;
  while (!stop_) {
    const std::uint32_t seen = bell.count.load();
    {
      const std::lock_guard lock(mutex_);
      move();
    }
    if (!stop_) bell.sleep(seen, std::chrono::seconds(1));
  }
}

void Mailbox::wait(Letter& letter) {
  const int peer = letter.operation.root;
  const bool sends = is_send(letter);
  const launch::Entry entry = letter.operation.entry;
  const Raised raised(communicator_.is_starter() ? &starter_blocked_ : nullptr);
  const Communicator::Wait wait{entry, sends ? "to receive it" : "to send it", Communicator::Clock::now(),
                                &starter_blocked_};
  communicator_.await(peer, communicator_.control().bell, wait, [&] { return done(letter); });
  if (!letter.error.empty()) throw Error(letter.error);
}

bool Mailbox::done(Letter& letter) {
  const std::lock_guard lock(mutex_);
  if (!letter.ended) move();
  return letter.ended;
}

void Mailbox::close() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  communicator_.control().bell.ring();
  if (thread_.joinable()) thread_.join();
}

}  // namespace tessera::comm::shm
