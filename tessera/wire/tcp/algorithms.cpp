#include <tessera/wire/tcp/algorithms.h>

#include <tessera/wire/ring/choice.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

namespace tessera::wire::tcp {

using launch::Op;

namespace {

// The pieces of one collective. The destructor drops pieces that were posted but not waited for.
class MeshLink final : public ring::Link {
 public:
  MeshLink(Mesh& mesh, const Operation& operation) : mesh_(mesh), operation_(operation) {}

  std::unique_ptr<Message> send(int peer, const void* data, std::size_t bytes) override {
    return std::make_unique<Sent>(*this, mesh_.send(peer, -1, data, bytes, operation_.entry), "to take its part");
  }
  std::unique_ptr<Message> recv(int peer, void* data, std::size_t bytes) override {
    return std::make_unique<Sent>(*this, mesh_.recv(peer, -1, data, bytes, operation_.entry), "to give its part");
  }

 private:
  class Sent final : public Message {
   public:
    Sent(MeshLink& link, Handle posted, const char* what) : link_(link), posted_(std::move(posted)), what_(what) {}
    ~Sent() override { link_.mesh_.forget(posted_); }
    void wait() override {
      try {
        link_.mesh_.wait(posted_, {what_, link_.operation_.timeout, link_.begin_});
      } catch (...) {
        link_.mesh_.forget(posted_);
        throw;
      }
    }

   private:
    MeshLink& link_;
    Handle posted_;
    const char* what_;
  };

  Mesh& mesh_;
  const Operation& operation_;
  const Clock::time_point begin_ = Clock::now();
};

using Messages = std::vector<std::unique_ptr<ring::Link::Message>>;
void wait_all(Messages& messages) {
  for (auto& message : messages) message->wait();
}

constexpr std::size_t chunk = std::size_t{1} << 20;

// Down a binomial tree with root `root`, chunk by chunk.
void broadcast(const Operation& operation, Mesh& mesh, ring::Link& link) {
  const int size = mesh.size(), place = (mesh.rank() - operation.root + size) % size;
  const auto rank_at = [&](int at) { return (at + operation.root) % size; };
  int mask = 1;
  while (mask < size && (place & mask) == 0) mask <<= 1;
  Messages sends;
  for (std::size_t begin = 0; begin == 0 || begin < operation.part_bytes; begin += chunk) {
    const std::size_t bytes = std::min(chunk, operation.part_bytes - begin);
    if (place != 0) link.recv(rank_at(place - mask), operation.output + begin, bytes)->wait();
    for (int below = mask >> 1; below > 0; below >>= 1) {
      if (place + below < size) sends.push_back(link.send(rank_at(place + below), operation.output + begin, bytes));
    }
  }
  wait_all(sends);
}

void gather(const Operation& operation, Mesh& mesh, ring::Link& link) {
  const std::size_t n = operation.part_bytes;
  if (mesh.rank() != operation.root) return link.send(operation.root, operation.input, n)->wait();
  Messages receives;
  for (int r = 0; r < mesh.size(); ++r) {
    std::byte* to = operation.output + static_cast<std::size_t>(r) * n;
    if (r != mesh.rank()) {
      receives.push_back(link.recv(r, to, n));
    } else if (n > 0 && to != operation.input) {
      std::memmove(to, operation.input, n);
    }
  }
  wait_all(receives);
}

void scatter(const Operation& operation, Mesh& mesh, ring::Link& link) {
  const std::size_t n = operation.part_bytes;
  if (mesh.rank() != operation.root) return link.recv(operation.root, operation.output, n)->wait();
  Messages sends;
  for (int r = 0; r < mesh.size(); ++r) {
    const std::byte* from = operation.input + static_cast<std::size_t>(r) * n;
    if (r != mesh.rank()) {
      sends.push_back(link.send(r, from, n));
    } else if (n > 0 && from != operation.output) {
      std::memmove(operation.output, from, n);
    }
  }
  wait_all(sends);
}

void all_to_all(const Operation& operation, Mesh& mesh, ring::Link& link) {
  const int size = mesh.size();
  std::vector<std::size_t> from{0}, to{0};
  for (const std::size_t n : operation.input_splits) from.push_back(from.back() + n);
  for (const std::size_t n : operation.output_splits) to.push_back(to.back() + n);
  Messages messages;
  for (int d = 1; d < size; ++d) {  // at each distance, all ranks have different partners
    const auto r = static_cast<std::size_t>((mesh.rank() - d + size) % size);
    messages.push_back(link.recv(static_cast<int>(r), operation.output + to[r], operation.output_splits[r]));
  }
  for (int d = 1; d < size; ++d) {
    const auto r = static_cast<std::size_t>((mesh.rank() + d) % size);
    messages.push_back(link.send(static_cast<int>(r), operation.input + from[r], operation.input_splits[r]));
  }
  const auto me = static_cast<std::size_t>(mesh.rank());
  if (operation.input_splits[me] != operation.output_splits[me]) {
    throw Failure(Code::mismatch,
                  concat(launch::describe(operation.entry), ": this rank sends itself ", operation.input_splits[me],
                         " bytes and expects ", operation.output_splits[me]));
  }
  if (operation.input_splits[me] > 0) {
    std::memcpy(operation.output + to[me], operation.input + from[me], operation.input_splits[me]);
  }
  wait_all(messages);
}

// Dissemination barrier: log2 R rounds.
void barrier(Mesh& mesh, ring::Link& link) {
  for (int distance = 1; distance < mesh.size(); distance <<= 1) {
    const auto coming = link.recv((mesh.rank() - distance + mesh.size()) % mesh.size(), nullptr, 0);
    link.send((mesh.rank() + distance) % mesh.size(), nullptr, 0)->wait();
    coming->wait();
  }
}

void sum(const Operation& operation, Mesh& mesh, ring::Link& link, ring::Scratch& scratch) {
  const Op op = operation.entry.op;
  ring::Job job;
  job.rank = mesh.rank();
  job.size = mesh.size();
  job.number = op == Op::all_gather ? kernels::Number::uint8 : operation.number;
  job.fold = operation.fold;
  job.loop = op == Op::all_gather ? nullptr : operation.loop;
  job.n = static_cast<std::int64_t>(operation.part_bytes) / kernels::size_of(job.number);
  job.output = operation.output;
  std::vector<std::byte> taken;
  if (op == Op::all_gather) {
    job.collective = ring::Collective::all_gather;
    job.input = operation.input;
  } else if (op == Op::reduce_scatter) {
    job.collective = ring::Collective::reduce_scatter;
    job.input = operation.input;
  } else {
    job.collective = ring::Collective::all_reduce;
    if (op == Op::reduce && mesh.rank() != operation.root) {  // gives and receives nothing
      taken.assign(operation.input, operation.input + operation.part_bytes);
      job.output = taken.data();
    } else if (operation.input != nullptr && operation.input != operation.output && operation.part_bytes > 0) {
      std::memcpy(operation.output, operation.input, operation.part_bytes);
    }
    job.input = job.output;
  }
  const auto bytes = static_cast<std::int64_t>(operation.part_bytes) *
                     (op == Op::all_gather || op == Op::reduce_scatter ? mesh.size() : 1);
  const auto choice = ring::choose(job.collective, bytes, mesh.size(), false).value_or(ring::Choice{});
  job.algorithm = choice.algorithm;
  job.chunk_bytes = choice.chunk_bytes;
  job.window = choice.window;
  if (job.n == 0) return barrier(mesh, link);  // every rank must have arrived
  ring::run(job, link, scratch);
}

}  // namespace

void run(const Operation& operation, Mesh& mesh, ring::Scratch& scratch) {
  mesh.begin(operation.entry);
  MeshLink link(mesh, operation);
  switch (operation.entry.op) {
    case Op::broadcast:
      return broadcast(operation, mesh, link);
    case Op::gather:
      return gather(operation, mesh, link);
    case Op::scatter:
      return scatter(operation, mesh, link);
    case Op::all_to_all:
      return all_to_all(operation, mesh, link);
    case Op::barrier:
      return barrier(mesh, link);
    default:
      return sum(operation, mesh, link, scratch);
  }
}

}  // namespace tessera::wire::tcp
