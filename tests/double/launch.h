#pragma once
/// \file
/// Our own CUDA kernels on the double: compiled for the host (tests/cuda_on_host), they run on the mirrors of their
/// pointers. Their pointers are checked and their accesses ordered like those of every other operator.

#include <tessera/kernels/cuda/reals.h>

#include <cstdint>
#include <vector>

#include <tests/double/memory.h>
#include <tests/double/order.h>

namespace cuda_double {

/// The pointers of one kernel. Each function returns the argument for the host's kernel; a null pointer stays null.
/// Throws for a host pointer, as a GPU does; adds a finding for memory of a device other than the current one.
class KernelArguments {
 public:
  /// `kernel`: its name, which must live as long as the process.
  explicit KernelArguments(const char* kernel) : kernel_(kernel) {}

  template <class Number>
  const Number* read(const Number* pointer, std::int64_t count) {
    return static_cast<const Number*>(add(pointer, count * static_cast<std::int64_t>(sizeof(Number)), true, false));
  }
  template <class Number>
  Number* write(Number* pointer, std::int64_t count) {
    return static_cast<Number*>(add(pointer, count * static_cast<std::int64_t>(sizeof(Number)), false, true));
  }
  template <class Number>
  Number* update(Number* pointer, std::int64_t count) {  ///< read and written
    return static_cast<Number*>(add(pointer, count * static_cast<std::int64_t>(sizeof(Number)), true, true));
  }
  tessera::kernels::cuda::ConstReals read(tessera::kernels::cuda::ConstReals x, std::int64_t count) {
    return {add(x.data, count * bytes_of(x.type), true, false), x.type};
  }
  tessera::kernels::cuda::Reals write(tessera::kernels::cuda::Reals y, std::int64_t count) {
    return {add(y.data, count * bytes_of(y.type), false, true), y.type};
  }
  tessera::kernels::cuda::Reals update(tessera::kernels::cuda::Reals y, std::int64_t count) {
    return {add(y.data, count * bytes_of(y.type), true, true), y.type};
  }

  /// Enqueues the kernel on the current stream of the current device. true: the caller runs it on the mirrors. false:
  /// this process only counts (products.h), and the kernel's outputs are zeros. `flops`: of matrix products.
  [[nodiscard]] bool enqueue(double flops = 0) const;

 private:
  void* add(const void* pointer, std::int64_t bytes, bool read, bool written);

  const char* kernel_;
  std::vector<Access> accesses_;
};

}  // namespace cuda_double
