#include <tessera/comm/ring/choice.h>

namespace tessera::comm::ring {

// Measured over loopback on two cores that others used too, interleaved with Gloo's own collectives of LibTorch 2.11; the
// best of 9 to 40 runs, microseconds, Gloo / ours (other machines may differ; the order of magnitude decides):
//
//   bytes            all_reduce, 2 ranks     all_reduce, 4 ranks       reduce_scatter, 4    all_gather, 4
//   4 KB             262 / 138 doubling      1373 / 274 doubling       1453 / 133 halving   558 / 363 doubling
//   64 KB            338 / 192 doubling      1529 / 226 doubling       1460 / 404 halving   837 / 189 doubling
//   256 KB           417 / 261 doubling      1922 / 687 doubling       1987 / 473 halving   778 / 491 doubling
//   1 MB             808 / 606 direct        4234 / 2330 halving       3401 / 917 halving   1727 / 808 doubling
//   4 MB             4741 / 2754 direct      9294 / 10176 halving      11344 / 4580 direct  6080 / 2264 doubling
//   16 MB            17634 / 12846 direct    50937 / 54402 direct      70489 / 28845 direct 34823 / 22882 doubling
//   64 MB            89136 / 67131 direct    218712 / 205137 direct
//
// So four ranks and more keep Gloo's all_reduce of long fp32 tensors: its ring moves as many bytes.
std::optional<Choice> choose(Collective collective, std::int64_t bytes, int size, bool half) {
  constexpr std::int64_t kb = 1024, mb = 1024 * kb;
  const Choice direct{Algorithm::direct, mb, 4}, halving{Algorithm::halving_doubling, mb, 4};
  const bool power_of_two = (size & (size - 1)) == 0;
  switch (collective) {
    case Collective::all_reduce:
      if (bytes <= 256 * kb) return Choice{Algorithm::doubling, 512 * kb, 4};
      if (size == 2 || half) return direct;
      if (bytes <= 2 * mb) return halving;
      return std::nullopt;
    case Collective::reduce_scatter:
      return bytes <= mb ? halving : direct;
    case Collective::all_gather:
      return power_of_two || bytes <= 256 * kb ? halving : direct;
  }
  return std::nullopt;
}

}  // namespace tessera::comm::ring
