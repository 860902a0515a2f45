#pragma once
/// \file
/// Local parts of parameters and of gradients: ordinary memory, always present, whose operators are watched.
///
/// - A part of a gradient, of which other ranks hold the rest: most optimizers treat every element separately. An
///   operator that mixes elements (a norm, a sum, LBFGS' dot products) would silently give every rank a different
///   number, so it is refused. The result of an elementwise operator (grad.pow(2)) is an ordinary tensor and not
///   watched.
/// - A part of a parameter: an operator that changes it, also through data() (which has its own version counter), makes
///   the gathered parameters outdated.

#include <ATen/core/Tensor.h>

#include <tessera/parallel/dispatch/managed.h>

#include <functional>
#include <string>

namespace tessera::parallel {

class LocalParts {
 public:
  /// `memory`: [n], contiguous, not managed. `watcher`, which must outlive this object, is entered by every operator on
  /// a part; `gone`: the error text for a part that outlives this object.
  LocalParts(const at::Tensor& memory, Materializer& watcher, std::string gone);
  LocalParts(const LocalParts&) = delete;
  LocalParts& operator=(const LocalParts&) = delete;

  /// A watched tensor on the memory of `part`, an unwatched view [k] of `memory`.
  at::Tensor watched(const at::Tensor& part);

 private:
  ManagedStorage storage_;
};

/// A watcher that refuses operators that mix elements.
Materializer& refuse_mixing();

/// A watcher that calls `written` before every operator that writes.
class WriteWatcher final : public Materializer {
 public:
  explicit WriteWatcher(std::function<void()> written) : written_(std::move(written)) {}
  void enter(std::span<const std::size_t>, bool writes, const char*) override {
    if (writes) written_();
  }
  void leave(std::span<const std::size_t>) noexcept override {}

 private:
  std::function<void()> written_;
};

}  // namespace tessera::parallel
