#include <tessera/base/error.h>
#include <tessera/wire/ring/schedule.h>

#include <algorithm>
#include <utility>

namespace tessera::wire::ring {
namespace {

Blocks one(int block) { return {block, block + 1}; }

void ring_reduce_scatter(Schedule& steps, int rank, int size) {
  const auto block = [&](int offset) { return one(((rank - offset) % size + size) % size); };
  for (int s = 0; s + 1 < size; ++s) {
    steps.push_back({.to = (rank + 1) % size,
                     .send = block(1 + s),
                     .sends = s == 0 ? Content::input : Content::partial,
                     .from = (rank + size - 1) % size,
                     .recv = block(2 + s),
                     .receives = s == 0 ? Content::input : Content::partial,
                     .reduce = true});
  }
}

void ring_all_gather(Schedule& steps, int rank, int size) {
  const auto block = [&](int offset) { return one(((rank - offset) % size + size) % size); };
  for (int s = 0; s + 1 < size; ++s) {
    steps.push_back({.to = (rank + 1) % size,
                     .send = block(s),
                     .sends = Content::result,
                     .from = (rank + size - 1) % size,
                     .recv = block(s + 1),
                     .receives = Content::result});
  }
}

// In step s every rank sends to rank + s, so no rank receives from two at once.
void direct_reduce_scatter(Schedule& steps, int rank, int size) {
  for (int s = 1; s < size; ++s) {
    const int to = (rank + s) % size;
    steps.push_back({.to = to,
                     .send = one(to),
                     .sends = Content::input,
                     .from = (rank + size - s) % size,
                     .recv = one(rank),
                     .receives = Content::input,
                     .reduce = true});
  }
}

void direct_all_gather(Schedule& steps, int rank, int size) {
  for (int s = 1; s < size; ++s) {
    const int from = (rank + size - s) % size;
    steps.push_back({.to = (rank + s) % size,
                     .send = one(rank),
                     .sends = Content::result,
                     .from = from,
                     .recv = one(from),
                     .receives = Content::result});
  }
}

// Reduces the ranks to the largest power of two: in each of the first `surplus` pairs (2v, 2v + 1) the odd rank passes
// its part to the even one and gets the result from it.
struct Folding {
  int power = 1, surplus = 0;
  bool folded;    // this rank does not take part in the exchanges
  bool carries;   // this rank also represents its odd neighbour
  int neighbour;  // partner of a folded or carrying rank
  int place;      // index among the `power` ranks that exchange

  Folding(int rank, int size) {
    while (power * 2 <= size) power *= 2;
    surplus = size - power;
    const bool paired = rank < 2 * surplus;
    folded = paired && rank % 2 == 1;
    carries = paired && rank % 2 == 0;
    neighbour = rank ^ 1;
    place = paired ? rank / 2 : rank - surplus;
  }
  int rank_at(int v) const { return v < surplus ? 2 * v : v + surplus; }
  // Blocks of the ranks at places [begin, end).
  Blocks blocks(int begin, int end) const { return {rank_at(begin), rank_at(end)}; }
};

// Exchanges of recursive halving, largest first: {partner, blocks kept, blocks sent}.
struct Halving {
  int partner;
  Blocks keep, give;
};
std::vector<Halving> halvings(const Folding& fold) {
  std::vector<Halving> all;
  int begin = 0, end = fold.power;
  while (end - begin > 1) {
    const int half = (end - begin) / 2, middle = begin + half;
    const Blocks low = fold.blocks(begin, middle), high = fold.blocks(middle, end);
    if (fold.place < middle) {
      all.push_back({fold.rank_at(fold.place + half), low, high});
      end = middle;
    } else {
      all.push_back({fold.rank_at(fold.place - half), high, low});
      begin = middle;
    }
  }
  return all;
}

// The odd rank of a pair sends `blocks` to the even one, which combines them.
void fold_input(Schedule& steps, const Folding& fold, Blocks blocks) {
  if (fold.folded) steps.push_back({.to = fold.neighbour, .send = blocks, .sends = Content::input});
  if (fold.carries) {
    steps.push_back({.from = fold.neighbour, .recv = blocks, .receives = Content::input, .reduce = true});
  }
}
// The even rank of a pair sends `blocks` to the odd one, which stores them unchanged.
void unfold(Schedule& steps, const Folding& fold, Blocks blocks, Content content) {
  if (fold.carries) steps.push_back({.to = fold.neighbour, .send = blocks, .sends = content});
  if (fold.folded) steps.push_back({.from = fold.neighbour, .recv = blocks, .receives = content});
}

// Content of an exchanging rank's next message: a carrying rank has already combined its neighbour's input.
Content exchanged(const Folding& fold_of_sender, bool first) {
  return first && !fold_of_sender.carries ? Content::input : Content::partial;
}

void halving_reduce_scatter(Schedule& steps, const Folding& fold, int size) {
  fold_input(steps, fold, {0, size});
  if (fold.folded) return;
  bool first = true;
  for (const Halving& h : halvings(fold)) {
    steps.push_back({.to = h.partner,
                     .send = h.give,
                     .sends = exchanged(fold, first),
                     .from = h.partner,
                     .recv = h.keep,
                     .receives = exchanged(Folding(h.partner, size), first),
                     .reduce = true});
    first = false;
  }
}

void doubling_all_gather(Schedule& steps, const Folding& fold) {
  if (fold.folded) return;
  std::vector<Halving> all = halvings(fold);
  std::reverse(all.begin(), all.end());
  for (const Halving& h : all) {
    steps.push_back({.to = h.partner,
                     .send = h.keep,
                     .sends = Content::result,
                     .from = h.partner,
                     .recv = h.give,
                     .receives = Content::result});
  }
}

void doubling_all_reduce(Schedule& steps, const Folding& fold, int size) {
  const Blocks all{0, size};
  fold_input(steps, fold, all);
  if (!fold.folded) {
    for (int distance = 1; distance < fold.power; distance *= 2) {
      const int partner = fold.rank_at(fold.place ^ distance);
      steps.push_back({.to = partner,
                       .send = all,
                       .sends = exchanged(fold, distance == 1),
                       .from = partner,
                       .recv = all,
                       .receives = exchanged(Folding(partner, size), distance == 1),
                       .reduce = true});
    }
  }
  unfold(steps, fold, all, Content::result);
}

// Marks the first and the last reduction of each block.
void mark(Schedule& steps, int size) {
  std::vector<bool> combined(static_cast<std::size_t>(size));
  Step* last = nullptr;
  for (Step& step : steps) {
    if (!step.reduce) continue;
    step.first = !combined[static_cast<std::size_t>(step.recv.begin)];
    for (int b = step.recv.begin; b < step.recv.end; ++b) combined[static_cast<std::size_t>(b)] = true;
    last = &step;
  }
  if (last != nullptr) last->completes = true;
}

}  // namespace

const char* algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::ring:
      return "ring";
    case Algorithm::direct:
      return "direct";
    case Algorithm::halving_doubling:
      return "halving_doubling";
    case Algorithm::doubling:
      return "doubling";
  }
  return "?";
}

bool implements(Algorithm algorithm, Collective collective) {
  return algorithm != Algorithm::doubling || collective == Collective::all_reduce;
}

Schedule make_schedule(Algorithm algorithm, Collective collective, int rank, int size) {
  TESSERA_CHECK(size >= 1 && rank >= 0 && rank < size, "schedule of rank ", rank, " of ", size);
  TESSERA_CHECK(implements(algorithm, collective), algorithm_name(algorithm), " is an algorithm for all_reduce only");
  Schedule steps;
  if (size == 1) return steps;
  const bool reduces = collective != Collective::all_gather, gathers = collective != Collective::reduce_scatter;
  switch (algorithm) {
    case Algorithm::ring:
      if (reduces) ring_reduce_scatter(steps, rank, size);
      if (gathers) ring_all_gather(steps, rank, size);
      break;
    case Algorithm::direct:
      if (reduces) direct_reduce_scatter(steps, rank, size);
      if (gathers) direct_all_gather(steps, rank, size);
      break;
    case Algorithm::halving_doubling: {
      const Folding fold(rank, size);
      const Blocks odd = one(rank | 1);  // the odd rank's block in this rank's pair
      if (reduces) {
        halving_reduce_scatter(steps, fold, size);
        if (!gathers) unfold(steps, fold, odd, Content::partial);
      } else {
        if (fold.folded) steps.push_back({.to = fold.neighbour, .send = odd, .sends = Content::result});
        if (fold.carries) steps.push_back({.from = fold.neighbour, .recv = odd, .receives = Content::result});
      }
      if (gathers) {
        doubling_all_gather(steps, fold);
        unfold(steps, fold, {0, size}, Content::result);
      }
      break;
    }
    case Algorithm::doubling:
      doubling_all_reduce(steps, Folding(rank, size), size);
      break;
  }
  mark(steps, size);
  return steps;
}

}  // namespace tessera::wire::ring
