#include <tessera/base/error.h>
#include <tessera/wire/shm/mailbox.h>

#include <signal.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

namespace tessera::wire::shm {

using launch::Op;

namespace {
constexpr std::uint64_t most_spare_bytes = std::uint64_t{256} << 20;
constexpr std::size_t stream_from = 4 << 20;

bool is_send(const Message& message) { return message.operation.entry.op == Op::send; }

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;  // from may be null
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

bool Mailbox::place(Message& message) {
  Control& control = communicator_.control();
  MessageSlot* free = nullptr;
  for (MessageSlot& slot : control.messages) {
    if (slot.state.load(std::memory_order_acquire) == MessageState::free) free = &slot;
  }
  if (free == nullptr) return false;
  const Operation& operation = message.operation;
  if (const auto offset = communicator_.segment().offset_in_arena(operation.output, operation.part_bytes)) {
    free->offset = *offset;
  } else {
    message.copy = buffer(operation.part_bytes, message.copy_bytes);
    copy_bytes(message.copy, operation.output, operation.part_bytes);
    free->offset = communicator_.segment().offset(message.copy);
  }
  free->bytes = operation.part_bytes;
  free->destination = operation.root;
  free->tag = operation.tag;
  free->number = next_number_++;
  free->entry = operation.entry;
  message.slot = free;
  publish_stores();
  free->state.store(MessageState::posted, std::memory_order_release);
  communicator_.control(operation.root).bell.ring();
  return true;
}

// The receiver has answered: frees the slot and the buffer.
void Mailbox::take_back(Message& message) {
  const MessageState state = message.slot->state.load(std::memory_order_acquire);
  if (state == MessageState::posted) return;
  if (state == MessageState::refused) {
    const char(&reason)[sizeof(Control::reason)] = communicator_.control(message.operation.root).reason;  // set first
    message.error = std::string(reason, strnlen(reason, sizeof reason));
    communicator_.fail(message.error, Code::mismatch);
  }
  if (message.copy != nullptr) {
    if (spare_bytes_ + message.copy_bytes <= most_spare_bytes) {
      spare_.emplace(message.copy_bytes, message.copy);
      spare_bytes_ += message.copy_bytes;
    } else {
      communicator_.segment().free(message.copy);
    }
  }
  message.slot->state.store(MessageState::free, std::memory_order_release);
  message.slot = nullptr;
  message.copy = nullptr;
  message.operation.keep.reset();
  message.ended = true;
}

MessageSlot* Mailbox::oldest_from(int source, int tag) const {
  MessageSlot* first = nullptr;
  for (MessageSlot& slot : communicator_.control(source).messages) {
    if (slot.state.load(std::memory_order_acquire) != MessageState::posted ||
        slot.destination != communicator_.rank() || slot.tag != tag) {
      continue;
    }
    if (first == nullptr || slot.number < first->number) first = &slot;
  }
  return first;
}

void Mailbox::receive(Message& message) {
  const Operation& operation = message.operation;
  int source = operation.root;
  MessageSlot* first = nullptr;
  if (source != any_source) {
    first = oldest_from(source, operation.tag);
  } else {
    // Round robin, so that one busy sender does not starve the others.
    for (int i = 0; i < communicator_.size() && first == nullptr; ++i) {
      source = static_cast<int>(next_source_++ % static_cast<unsigned>(communicator_.size()));
      if (source != communicator_.rank()) first = oldest_from(source, operation.tag);
    }
  }
  if (first == nullptr) return;
  message.source = source;
  Control& theirs = communicator_.control(source);
  const bool same_type = std::strncmp(first->entry.dtype, operation.entry.dtype, sizeof operation.entry.dtype) == 0;
  if (first->bytes != operation.part_bytes || !same_type) {
    message.error = concat("the message does not fit: ", communicator_.member_text(communicator_.rank()), " ",
                           launch::describe(operation.entry), ", ", communicator_.member_text(source), " ",
                           launch::describe(launch::Entry(first->entry)));
    communicator_.fail(message.error, Code::mismatch);
    first->state.store(MessageState::refused, std::memory_order_release);
  } else {
    copy_bytes(operation.output, communicator_.at(source, first->offset, first->bytes), first->bytes);
    publish_stores();
    first->state.store(MessageState::taken, std::memory_order_release);
  }
  theirs.bell.ring();
  message.operation.keep.reset();
  message.ended = true;
}

// Makes all progress that is possible without waiting. Messages between two ranks with the same tag stay in order.
void Mailbox::move() {
  for (const auto& message : sends_) {
    if (message->slot != nullptr) take_back(*message);
  }
  std::erase_if(sends_, [](const auto& message) { return message->ended; });
  for (const auto& message : sends_) {
    if (message->slot == nullptr && !place(*message)) break;
  }
  std::set<std::pair<int, int>> waiting;
  for (const auto& message : receives_) {
    const std::pair<int, int> from(message->operation.root, message->operation.tag);
    if (waiting.count(from) != 0) continue;
    receive(*message);
    if (!message->ended) waiting.insert(from);
  }
  std::erase_if(receives_, [](const auto& message) { return message->ended; });
}

std::shared_ptr<Message> Mailbox::start(Operation operation) {
  communicator_.throw_if_failed();
  communicator_.note_thread();
  auto message = std::make_shared<Message>(std::move(operation));
  const std::lock_guard lock(mutex_);
  if (stop_) throw Failure(Code::shut_down, "the group was closed by shutdown()");
  (is_send(*message) ? sends_ : receives_).push_back(message);
  move();
  if (!message->ended && !thread_.joinable()) {
    sigset_t all, former;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    thread_ = std::thread([this] { serve(); });
    pthread_sigmask(SIG_SETMASK, &former, nullptr);
  }
  return message;
}

// Sleeps on this rank's bell and moves messages that no thread waits for.
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

Communicator::Wait Mailbox::wait_of(const Message& message, Communicator::Clock::time_point until) const {
  const Operation& operation = message.operation;
  return {operation.entry,
          is_send(message) ? "to receive it" : "to send it",
          operation.timeout,
          &starter_blocked_,
          until,
          operation.timeout.count() > 0 ? message.started : Communicator::Clock::now()};
}

bool Mailbox::wait_until(Message& message, Communicator::Clock::time_point until) {
  const Raised raised(communicator_.is_starter() ? &starter_blocked_ : nullptr);
  const Communicator::Wait wait = wait_of(message, until);
  const bool ended =
      communicator_.await(message.operation.root, communicator_.control().bell, wait, [&] { return done(message); });
  if (ended && !message.error.empty()) throw Failure(Code::mismatch, message.error);
  return ended;
}

bool Mailbox::poll(Message& message) {
  if (!done(message)) {
    try {
      communicator_.look(message.operation.root, wait_of(message, Communicator::Clock::time_point::max()));
    } catch (...) {
      if (!done(message)) throw;  // what the peer did before it died or left counts
    }
    return false;
  }
  if (!message.error.empty()) throw Failure(Code::mismatch, message.error);
  return true;
}

bool Mailbox::done(Message& message) {
  const std::lock_guard lock(mutex_);
  if (!message.ended) move();
  return message.ended;
}

void Mailbox::close() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  communicator_.control().bell.ring();
  if (thread_.joinable()) thread_.join();
}

}  // namespace tessera::wire::shm
