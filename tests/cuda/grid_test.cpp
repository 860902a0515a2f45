// The host's CUDA (tests/cuda_on_host): a kernel with a missing barrier gives different results in some order of
// threads.
#include <tests/cuda_on_host/cuda_runtime.h>

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <stdexcept>
#include <vector>

namespace {

using cuda_on_host::Order;

template <class... Parameters, class... Arguments>
void launch(unsigned blocks, unsigned threads, void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  cudaLaunchKernelEx(&config, kernel, arguments...);
}

/// Results of `kernel` for 128 numbers, in every order of threads.
std::set<std::vector<int>> results(void (*kernel)(const int*, int*)) {
  std::set<std::vector<int>> all;
  std::vector<int> in(128);
  std::iota(in.begin(), in.end(), 1);
  const auto run = [&](Order order, unsigned seed) {
    std::vector<int> out(128, -1);
    cuda_on_host::set_order(order, seed);
    launch(1, 128, kernel, in.data(), out.data());
    all.insert(out);
  };
  run(Order::forward, 0);
  run(Order::backward, 0);
  for (unsigned seed = 1; seed <= 4; ++seed) run(Order::shuffled, seed);
  cuda_on_host::set_order(Order::forward);
  return all;
}

template <bool barrier>
__global__ void reverse(const int* in, int* out) {
  __shared__ int part[128];
  part[threadIdx.x] = in[threadIdx.x];
  if (barrier) __syncthreads();
  out[threadIdx.x] = part[127 - threadIdx.x];
  __syncthreads();
  part[threadIdx.x] = 0;
}

template <bool barrier>
__global__ void sum(const int* in, int* out) {
  __shared__ int part[128];
  part[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  for (unsigned half = 64; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    if (barrier) __syncthreads();
  }
  if (threadIdx.x == 0) out[0] = part[0];
  __syncthreads();
}

template <bool barrier>
__global__ void reuse(const int* in, int* out) {  // shared memory is overwritten after it is read
  __shared__ int part[128];
  part[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  const int first = part[(threadIdx.x + 1) % 128];
  if (barrier) __syncthreads();
  part[threadIdx.x] = -in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = first;
}

template <bool barrier>
__global__ void ahead(const int* in, int* out) {  // a warp overtakes another although each waits for its own lanes
  __shared__ int part[4];
  int sums[2];
  for (int i = 0; i < 2; ++i) {
    int value = in[threadIdx.x] * (i + 1);
    for (unsigned half = 16; half > 0; half /= 2) value += __shfl_xor_sync(0xffffffffU, value, half);
    if (barrier) __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
    sums[i] = part[0] + part[1] + part[2] + part[3];
  }
  out[threadIdx.x] = sums[0];
}

TEST(CudaOnHost, AMissingBarrierShows) {
  EXPECT_EQ(results(&reverse<true>).size(), 1U);
  EXPECT_GT(results(&reverse<false>).size(), 1U);
  EXPECT_EQ(results(&sum<true>).size(), 1U);
  EXPECT_GT(results(&sum<false>).size(), 1U);
  EXPECT_EQ(results(&reuse<true>).size(), 1U);
  EXPECT_GT(results(&reuse<false>).size(), 1U);
  EXPECT_EQ(results(&ahead<true>).size(), 1U);
  EXPECT_GT(results(&ahead<false>).size(), 1U);
}

__global__ void some_wait(const int*, int*) {
  if (threadIdx.x < 64) __syncthreads();
}
__global__ void two_barriers(const int*, int*) {
  if (threadIdx.x < 64) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST(CudaOnHost, BarriersThatNotAllReachAreRefused) {
  EXPECT_THROW(results(&some_wait), std::logic_error);
  EXPECT_THROW(results(&two_barriers), std::logic_error);
}

__global__ void lanes(const int* in, int* out) {
  int value = in[threadIdx.x];
  for (unsigned half = 16; half > 0; half /= 2) value += __shfl_xor_sync(0xffffffffU, value, half);
  out[threadIdx.x] = value;
}

TEST(CudaOnHost, ShufflesStayInsideOfAWarp) {
  const auto all = results(&lanes);
  ASSERT_EQ(all.size(), 1U);
  for (int warp = 0; warp < 4; ++warp) {
    for (int lane = 0; lane < 32; ++lane) {
      EXPECT_EQ((*all.begin())[static_cast<std::size_t>(32 * warp + lane)], 32 * 32 * warp + 32 * 33 / 2);
    }
  }
}

__global__ void of_a_lane(const int* in, int* out) {
  out[threadIdx.x] = __shfl_sync(0xffffffffU, in[threadIdx.x], 5U) + __shfl_sync(0xffffffffU, in[threadIdx.x], 6U);
}

TEST(CudaOnHost, AValueOfOneLane) {
  const auto all = results(&of_a_lane);
  ASSERT_EQ(all.size(), 1U);
  for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ((*all.begin())[i], static_cast<int>(2 * (i / 32 * 32) + 13));
}

__global__ void places(int* out) { out[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

TEST(CudaOnHost, EveryThreadRunsOnce) {
  std::vector<int> out(3 * 70, 0);
  launch(3, 70, &places, out.data());
  EXPECT_EQ(out, std::vector<int>(210, 1));
}

}  // namespace
