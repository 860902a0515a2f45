#pragma once
/// \file
/// A loop divided among the threads of LibTorch's pool. at::parallel_for is an inline function with an OpenMP region,
/// so it uses the OpenMP runtime of the compiler that builds the caller: clang's would start a second pool next to
/// LibTorch's (libomp next to libgomp), and without OpenMP the loop is serial. This one is compiled once and uses
/// LibTorch's own pool with any compiler.

#include <cstdint>

namespace tessera::nn {

namespace detail {
using Range = void (*)(const void* body, std::int64_t begin, std::int64_t end);
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain, const void* body, Range call);
}  // namespace detail

/// Calls body(first, last) for disjoint ranges that cover [begin, end): one range on the calling thread if end - begin
/// <= grain, if at::get_num_threads() is 1, or inside of another parallel region; otherwise at most
/// at::get_num_threads() ranges of equal length, none but the last shorter than `grain`, cut as at::parallel_for does.
/// Waits for all of them and throws the first exception of a range.
template <class Body>
void parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain, const Body& body) {
  detail::parallel_for(begin, end, grain, &body, [](const void* of, std::int64_t first, std::int64_t last) {
    (*static_cast<const Body*>(of))(first, last);
  });
}

}  // namespace tessera::nn
