#include <tessera/wire/ring/choice.h>

namespace tessera::wire::ring {

// Measured over loopback on two cores shared with other jobs, alternating with the Gloo collectives of LibTorch 2.11;
// medians of 9 to 40 runs with this choice, microseconds, Gloo / ours:
//
//             all_reduce                       reduce_scatter                   all_gather
//   bytes     2 ranks         4 ranks          2 ranks         4 ranks          2 ranks         4 ranks
//   4 KB      4139 / 143      7904 / 846       693 / 322       7808 / 729       3902 / 240      4913 / 883
//   64 KB     3985 / 260      7706 / 1318      752 / 254       7911 / 3708      298 / 174       4802 / 935
//   1 MB      2047 / 1378     9016 / 7188      3774 / 1837     6949 / 2127      3252 / 720      4839 / 1642
//   4 MB      5777 / 6498     17098 / 13395 *  7733 / 5281     15548 / 7175     5448 / 2142     9956 / 4268
//   16 MB     21205 / 21041   50768 / 47793 *  36821 / 12678   55963 / 28999    14861 / 14036   41667 / 21447
//   64 MB     72908 / 73019   202185 / 196089* 152384 / 53633  295715 / 119861  124207 / 43270  229785 / 83611
//
// (* Gloo's own.) Long fp32 all-reduces are limited by bandwidth, and every algorithm moves the same number of bytes:
// two ranks break even (on a quiet machine, 15 pairs: 256 KB 566 / 376, 4 MB 4065 / 3640, 64 MB 46273 / 52301). Above
// that size, and with more ranks, Gloo's own algorithm is used. bf16 and fp16 were not timed: `direct` moves half as
// many bytes as Gloo, which sends them as fp32.
std::optional<Choice> choose(Collective collective, std::int64_t bytes, int size, bool half) {
  constexpr std::int64_t kb = 1024, mb = 1024 * kb;
  const Choice direct{Algorithm::direct, mb, 4}, halving{Algorithm::halving_doubling, mb, 4};
  const bool power_of_two = (size & (size - 1)) == 0;
  switch (collective) {
    case Collective::all_reduce:
      if (bytes <= 256 * kb) return Choice{Algorithm::doubling, 512 * kb, 4};
      if (half || (size == 2 && bytes <= 4 * mb)) return direct;
      if (bytes <= 2 * mb) return halving;
      return std::nullopt;
    case Collective::reduce_scatter:
      return bytes <= mb ? halving : direct;
    case Collective::all_gather:
      return power_of_two || bytes <= 256 * kb ? halving : direct;
  }
  return std::nullopt;
}

}  // namespace tessera::wire::ring
