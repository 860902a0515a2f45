#include <tessera/wire/mpi/collectives.h>
#include <tessera/wire/ring/collectives.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

namespace tessera::wire::mpi {

using kernels::Fold;
using kernels::Number;
using launch::Op;

namespace {

// The pieces of one collective. A destroyed message is given up.
class ChannelLink final : public ring::Link {
 public:
  ChannelLink(Channel& channel, const Operation& operation, std::shared_ptr<void> scratch)
      : channel_(channel), operation_(operation), scratch_(std::move(scratch)) {}

  std::unique_ptr<Message> send(int peer, const void* data, std::size_t bytes) override {
    return std::make_unique<Piece>(*this, channel_.send(peer, -1, data, bytes, operation_.entry, scratch_),
                                   "to take its part");
  }
  std::unique_ptr<Message> recv(int peer, void* data, std::size_t bytes) override {
    return std::make_unique<Piece>(*this, channel_.recv(peer, -1, data, bytes, operation_.entry, scratch_),
                                   "to give its part");
  }

 private:
  class Piece final : public Message {
   public:
    Piece(ChannelLink& link, Handle posted, const char* what) : link_(link), posted_(std::move(posted)), what_(what) {}
    ~Piece() override { link_.channel_.forget(posted_); }
    void wait() override { link_.channel_.wait(*posted_, {what_, link_.operation_.timeout, link_.begin_}); }

   private:
    ChannelLink& link_;
    Handle posted_;
    const char* what_;
  };

  Channel& channel_;
  const Operation& operation_;
  const std::shared_ptr<void> scratch_;
  const Clock::time_point begin_ = Clock::now();
};

// The library's collectives take at most INT_MAX elements; larger parts go in several.
constexpr std::size_t most_bytes = std::size_t{1} << 30;

struct Sum {
  int number, fold;
  int divisor = 1;
};

// Reductions of more bytes in small groups go over messages. Medians of neighbouring runs, MPICH 5.0.2, two ranks on
// two busy cores through shared memory, time of MPI_Allreduce / time of all_reduce (with the library's own; over
// messages):
//   4 KB 0.37; 0.38    1 MB 0.87; 1.01    64 MB 0.94; 1.43
constexpr std::size_t most_bytes_of_library = std::size_t{512} << 10;
constexpr int most_ranks_of_messages = 16;

bool prefers_messages(std::size_t bytes, int ranks) {
  const char* const word = std::getenv("TESSERA_MPI_COLLECTIVES");
  if (word == nullptr || *word == 0) return bytes > most_bytes_of_library && ranks <= most_ranks_of_messages;
  if (std::strcmp(word, "library") == 0) return false;
  if (std::strcmp(word, "messages") == 0) return true;
  throw Failure(Code::invalid, concat("TESSERA_MPI_COLLECTIVES=", word, "; use library or messages."));
}

// The library's own arithmetic, where it equals Tessera's: not for 16-bit floating point, which is added in fp32, nor
// for min and max of floating point, which propagate NaN.
std::optional<Sum> sum_of(const Operation& operation, int ranks) {
  if (operation.loop != nullptr) return std::nullopt;
  const bool real = operation.number == Number::fp32 || operation.number == Number::fp64;
  Sum sum{};
  switch (operation.number) {
    case Number::int8:
      sum.number = TESSERA_MPI_INT8;
      break;
    case Number::uint8:
      sum.number = TESSERA_MPI_UINT8;
      break;
    case Number::int32:
      sum.number = TESSERA_MPI_INT32;
      break;
    case Number::int64:
      sum.number = TESSERA_MPI_INT64;
      break;
    case Number::fp32:
      sum.number = TESSERA_MPI_FLOAT;
      break;
    case Number::fp64:
      sum.number = TESSERA_MPI_DOUBLE;
      break;
    default:
      return std::nullopt;
  }
  switch (operation.fold) {
    case Fold::sum:
      sum.fold = TESSERA_MPI_SUM;
      return sum;
    case Fold::mean:
      if (!real) return std::nullopt;
      sum.fold = TESSERA_MPI_SUM;
      sum.divisor = ranks;
      return sum;
    case Fold::product:
      sum.fold = TESSERA_MPI_PRODUCT;
      return sum;
    case Fold::min:
    case Fold::max:
      if (real) return std::nullopt;
      sum.fold = operation.fold == Fold::min ? TESSERA_MPI_MIN : TESSERA_MPI_MAX;
      return sum;
  }
  return std::nullopt;
}

template <class T>
void divide(std::byte* data, std::size_t bytes, int divisor) {
  for (std::size_t at = 0; at + sizeof(T) <= bytes; at += sizeof(T)) {
    T value;
    std::memcpy(&value, data + at, sizeof value);
    value /= static_cast<T>(divisor);
    std::memcpy(data + at, &value, sizeof value);
  }
}

// One collective of the library, of the calls below.
class Own {
 public:
  Own(const Operation& operation, Channel& channel) : operation_(operation), channel_(channel) {}

  // False if the library's own does not fit; the same on all ranks.
  bool run() {
    const std::size_t n = operation_.part_bytes;
    const int root = operation_.root;
    const bool is_root = root == channel_.rank();
    switch (operation_.entry.op) {
      case Op::barrier:
        finish("MPI_Ibarrier", [](const auto& f, auto comm, auto* request) { return f.barrier(comm, request); });
        return true;
      case Op::broadcast:
        for (std::size_t at = 0; at == 0 || at < n; at += most_bytes) {
          const int bytes = static_cast<int>(std::min(most_bytes, n - at));
          finish("MPI_Ibcast", [&](const auto& f, auto comm, auto* request) {
            return f.broadcast(comm, operation_.output + at, bytes, root, request);
          });
        }
        return true;
      case Op::all_gather: {
        if (n > most_bytes) return false;
        // Either all ranks are in place or none, and callers decide one by one.
        std::byte* own = operation_.output + static_cast<std::size_t>(channel_.rank()) * n;
        if (n > 0 && operation_.input != own) std::memmove(own, operation_.input, n);
        finish("MPI_Iallgather", [&](const auto& f, auto comm, auto* request) {
          return f.all_gather(comm, some(operation_.output), static_cast<int>(n), request);
        });
        return true;
      }
      case Op::gather:
        if (n > most_bytes) return false;
        finish("MPI_Igather", [&](const auto& f, auto comm, auto* request) {
          const bool in_place = is_root && operation_.input == operation_.output + static_cast<std::size_t>(root) * n;
          return f.gather(comm, in_place ? nullptr : some(operation_.input), some(operation_.output),
                          static_cast<int>(n), root, request);
        });
        return true;
      case Op::scatter:
        if (n > most_bytes) return false;
        finish("MPI_Iscatter", [&](const auto& f, auto comm, auto* request) {
          const bool in_place = is_root && operation_.output == operation_.input + static_cast<std::size_t>(root) * n;
          return f.scatter(comm, some(operation_.input), in_place ? nullptr : some(operation_.output),
                           static_cast<int>(n), root, request);
        });
        return true;
      case Op::all_reduce:
      case Op::reduce:
      case Op::reduce_scatter:
        return combine();
      default:
        return false;  // all_to_all: the sizes of other ranks' parts are not known here
    }
  }

 private:
  // Memory of size 0 may be null, which has a meaning of its own.
  template <class T>
  T* some(T* data) {
    return data != nullptr ? data : &nothing_;
  }

  template <class Post>
  void finish(const char* what, const Post& post) {
    const Handle posted = channel_.collective(operation_.entry, what, post);
    posted->keep = operation_.keep;
    try {
      channel_.wait(*posted, {"to take part", operation_.timeout, begin_});
    } catch (...) {
      channel_.forget(posted);
      throw;
    }
  }

  bool combine() {
    const std::optional<Sum> sum = sum_of(operation_, channel_.size());
    const auto width = static_cast<std::size_t>(kernels::size_of(operation_.number));
    const std::size_t n = operation_.part_bytes;
    if (!sum) return false;
    const Op op = operation_.entry.op;
    const std::size_t whole = op == Op::reduce_scatter ? n * static_cast<std::size_t>(channel_.size()) : n;
    if (op != Op::reduce && prefers_messages(whole, channel_.size())) return false;
    if (op == Op::reduce_scatter) {
      if (n > most_bytes) return false;
      finish("MPI_Ireduce_scatter_block", [&](const auto& f, auto comm, auto* request) {
        return f.reduce_scatter(comm, operation_.input, operation_.output, static_cast<int>(n / width), sum->number,
                                sum->fold, request);
      });
      divide(*sum);
      return true;
    }
    std::byte* const data = operation_.output;
    const bool is_root = operation_.root == channel_.rank();
    if (operation_.input != nullptr && operation_.input != data && n > 0 && (op == Op::all_reduce || is_root)) {
      std::memcpy(data, operation_.input, n);
    }
    for (std::size_t at = 0; at == 0 || at < n; at += most_bytes) {
      const int count = static_cast<int>(std::min(most_bytes, n - at) / width);
      finish(op == Op::reduce ? "MPI_Ireduce" : "MPI_Iallreduce", [&](const auto& f, auto comm, auto* request) {
        if (op == Op::all_reduce) return f.all_reduce(comm, data + at, count, sum->number, sum->fold, request);
        return f.reduce(comm, data + at, count, sum->number, sum->fold, operation_.root, is_root ? 1 : 0, request);
      });
    }
    if (op == Op::all_reduce || is_root) divide(*sum);
    return true;
  }
  void divide(const Sum& sum) {
    if (sum.divisor == 1) return;
    if (operation_.number == Number::fp32) {
      mpi::divide<float>(operation_.output, operation_.part_bytes, sum.divisor);
    } else {
      mpi::divide<double>(operation_.output, operation_.part_bytes, sum.divisor);
    }
  }

  const Operation& operation_;
  Channel& channel_;
  std::byte nothing_{};
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

void run(const Operation& operation, Channel& channel, const std::shared_ptr<ring::Scratch>& scratch) {
  channel.begin(operation.entry, operation.timeout);
  if (!Own(operation, channel).run()) {
    ChannelLink link(channel, operation, scratch);
    ring::run(operation, {channel.rank(), channel.size()}, link, *scratch);
  }
  channel.finished();
}

}  // namespace tessera::wire::mpi
