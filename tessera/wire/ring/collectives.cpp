#include <tessera/wire/failure.h>
#include <tessera/wire/ring/choice.h>
#include <tessera/wire/ring/collectives.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace tessera::wire::ring {

using launch::Op;

namespace {

using Messages = std::vector<std::unique_ptr<Link::Message>>;
void wait_all(Messages& messages) {
  for (auto& message : messages) message->wait();
}

constexpr std::size_t chunk = std::size_t{1} << 20;

// Down a binomial tree with root `root`, chunk by chunk.
void broadcast(const Operation& operation, const Ranks& ranks, Link& link) {
  const int size = ranks.size, place = (ranks.rank - operation.root + size) % size;
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

void gather(const Operation& operation, const Ranks& ranks, Link& link) {
  const std::size_t n = operation.part_bytes;
  if (ranks.rank != operation.root) return link.send(operation.root, operation.input, n)->wait();
  Messages receives;
  for (int r = 0; r < ranks.size; ++r) {
    std::byte* to = operation.output + static_cast<std::size_t>(r) * n;
    if (r != ranks.rank) {
      receives.push_back(link.recv(r, to, n));
    } else if (n > 0 && to != operation.input) {
      std::memmove(to, operation.input, n);
    }
  }
  wait_all(receives);
}

void scatter(const Operation& operation, const Ranks& ranks, Link& link) {
  const std::size_t n = operation.part_bytes;
  if (ranks.rank != operation.root) return link.recv(operation.root, operation.output, n)->wait();
  Messages sends;
  for (int r = 0; r < ranks.size; ++r) {
    const std::byte* from = operation.input + static_cast<std::size_t>(r) * n;
    if (r != ranks.rank) {
      sends.push_back(link.send(r, from, n));
    } else if (n > 0 && from != operation.output) {
      std::memmove(operation.output, from, n);
    }
  }
  wait_all(sends);
}

void all_to_all(const Operation& operation, const Ranks& ranks, Link& link) {
  const int size = ranks.size;
  std::vector<std::size_t> from{0}, to{0};
  for (const std::size_t n : operation.input_splits) from.push_back(from.back() + n);
  for (const std::size_t n : operation.output_splits) to.push_back(to.back() + n);
  Messages messages;
  for (int d = 1; d < size; ++d) {  // at each distance, all ranks have different partners
    const auto r = static_cast<std::size_t>((ranks.rank - d + size) % size);
    messages.push_back(link.recv(static_cast<int>(r), operation.output + to[r], operation.output_splits[r]));
  }
  for (int d = 1; d < size; ++d) {
    const auto r = static_cast<std::size_t>((ranks.rank + d) % size);
    messages.push_back(link.send(static_cast<int>(r), operation.input + from[r], operation.input_splits[r]));
  }
  const auto me = static_cast<std::size_t>(ranks.rank);
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
void barrier(const Ranks& ranks, Link& link) {
  for (int distance = 1; distance < ranks.size; distance <<= 1) {
    const auto coming = link.recv((ranks.rank - distance + ranks.size) % ranks.size, nullptr, 0);
    link.send((ranks.rank + distance) % ranks.size, nullptr, 0)->wait();
    coming->wait();
  }
}

void sum(const Operation& operation, const Ranks& ranks, Link& link, Scratch& scratch) {
  const Op op = operation.entry.op;
  Job job;
  job.rank = ranks.rank;
  job.size = ranks.size;
  job.number = op == Op::all_gather ? kernels::Number::uint8 : operation.number;
  job.fold = operation.fold;
  job.loop = op == Op::all_gather ? nullptr : operation.loop;
  job.n = static_cast<std::int64_t>(operation.part_bytes) / kernels::size_of(job.number);
  job.output = operation.output;
  std::vector<std::byte> taken;
  if (op == Op::all_gather) {
    job.collective = Collective::all_gather;
    job.input = operation.input;
  } else if (op == Op::reduce_scatter) {
    job.collective = Collective::reduce_scatter;
    job.input = operation.input;
  } else {
    job.collective = Collective::all_reduce;
    if (op == Op::reduce && ranks.rank != operation.root) {  // gives and receives nothing
      taken.assign(operation.input, operation.input + operation.part_bytes);
      job.output = taken.data();
    } else if (operation.input != nullptr && operation.input != operation.output && operation.part_bytes > 0) {
      std::memcpy(operation.output, operation.input, operation.part_bytes);
    }
    job.input = job.output;
  }
  const auto bytes = static_cast<std::int64_t>(operation.part_bytes) *
                     (op == Op::all_gather || op == Op::reduce_scatter ? ranks.size : 1);
  const auto choice = choose(job.collective, bytes, ranks.size, false).value_or(Choice{});
  job.algorithm = choice.algorithm;
  job.chunk_bytes = choice.chunk_bytes;
  job.window = choice.window;
  if (job.n == 0) return barrier(ranks, link);  // every rank must have arrived
  run(job, link, scratch);
}

}  // namespace

void run(const Operation& operation, const Ranks& ranks, Link& link, Scratch& scratch) {
  switch (operation.entry.op) {
    case Op::broadcast:
      return broadcast(operation, ranks, link);
    case Op::gather:
      return gather(operation, ranks, link);
    case Op::scatter:
      return scatter(operation, ranks, link);
    case Op::all_to_all:
      return all_to_all(operation, ranks, link);
    case Op::barrier:
      return barrier(ranks, link);
    default:
      return sum(operation, ranks, link, scratch);
  }
}

}  // namespace tessera::wire::ring
