#pragma once
/// \file
/// A single-process materializer for tests of managed parameters. Values are stored in plain tensors ("homes"); an
/// operator gets a copy, which is filled with NaN and freed when the operator ends. Code that reads a parameter without
/// requesting it therefore throws or yields NaN.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <tessera/base/error.h>
#include <tessera/parallel/dispatch/managed.h>

#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace managed_test {

using tessera::parallel::ManagedStorage;
using tessera::parallel::Materializer;

struct Entry {
  std::vector<std::size_t> units;
  bool writes;
  std::string op;
};

class DroppingMaterializer final : public Materializer {
 public:
  void enter(std::span<const std::size_t> units, bool writes, const char* op) override {
    const std::lock_guard lock(mutex_);
    entries.push_back({{units.begin(), units.end()}, writes, op});
    if (writes && !writes_allowed) throw tessera::Error(std::string(op) + " writes a parameter");
    if (refuse) throw tessera::Error(std::string(op) + " is refused");
    for (const std::size_t u : units) {
      if (units_[u].pins++ == 0) units_[u].storage->attach(units_[u].home.clone());
      units_[u].written |= writes;
    }
  }

  void leave(std::span<const std::size_t> units) noexcept override {
    const std::lock_guard lock(mutex_);
    for (const std::size_t u : units) {
      Unit& unit = units_[u];
      if (--unit.pins > 0) continue;
      const at::Tensor buffer = unit.storage->detach();
      const at::NoGradGuard no_grad;
      if (unit.written) unit.home.copy_(buffer);
      unit.written = false;
      at::Tensor(buffer).fill_(std::numeric_limits<double>::quiet_NaN());
    }
  }

  /// Makes a unit of `parameters`, each 64-byte aligned, in `dtype`. Keeps their current values.
  std::size_t manage(const std::vector<at::Tensor>& parameters, std::optional<at::ScalarType> dtype = {}) {
    const at::NoGradGuard no_grad;
    const std::size_t u = units_.size();
    std::vector<std::int64_t> offsets;
    std::int64_t size = 0;
    for (const at::Tensor& p : parameters) {
      offsets.push_back(size);
      size += (p.numel() + 63) / 64 * 64;
    }
    const auto type = dtype.value_or(parameters.front().scalar_type());
    Unit unit;
    unit.home = at::zeros({size}, type);
    unit.storage = std::make_unique<ManagedStorage>(*this, u, size, type, at::kCPU,
                                                    "a parameter of unit " + std::to_string(u) + " is absent");
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor p = parameters[i];
      const auto sizes = p.sizes().vec(), strides = p.strides().vec();
      unit.home.narrow(0, offsets[i], p.numel()).copy_(p.contiguous().view(-1));
      unit.storage->adopt(p, offsets[i], sizes, at::zeros(sizes).strides());
      unit.members.push_back(unit.home.narrow(0, offsets[i], p.numel()).view(sizes));
      unit.parameters.push_back(p);
    }
    units_.push_back(std::move(unit));
    return u;
  }

  /// Makes a unit per sub-module that has parameters of its own.
  void manage(torch::nn::Module& module) {
    std::set<at::TensorImpl*> seen;
    for (const auto& sub : module.modules()) {
      std::vector<at::Tensor> own;
      for (const at::Tensor& p : sub->parameters(/*recurse=*/false))
        if (p.defined() && seen.insert(p.unsafeGetTensorImpl()).second) own.push_back(p);
      if (!own.empty()) manage(own);
    }
  }

  ManagedStorage& storage(std::size_t unit) { return *units_[unit].storage; }
  at::Tensor home(std::size_t unit) const { return units_[unit].home; }
  /// Applies value -= rate * grad to every parameter.
  void step(double rate) {
    const at::NoGradGuard no_grad;
    for (Unit& unit : units_)
      for (std::size_t i = 0; i < unit.parameters.size(); ++i)
        if (unit.parameters[i].grad().defined()) unit.members[i].sub_(unit.parameters[i].grad(), rate);
  }
  at::Tensor value(const at::Tensor& parameter) const {
    for (const Unit& unit : units_)
      for (std::size_t i = 0; i < unit.parameters.size(); ++i)
        if (unit.parameters[i].is_same(parameter)) return unit.members[i];
    return {};
  }
  bool all_left() const {
    for (const Unit& unit : units_)
      if (unit.pins != 0 || unit.storage->present()) return false;
    return true;
  }
  std::set<std::string> operators() const {
    std::set<std::string> names;
    for (const Entry& e : entries) names.insert(e.op);
    return names;
  }

  std::vector<Entry> entries;
  bool writes_allowed = false;
  bool refuse = false;

 private:
  struct Unit {
    at::Tensor home;
    std::unique_ptr<ManagedStorage> storage;
    std::vector<at::Tensor> members, parameters;
    int pins = 0;
    bool written = false;
  };
  std::vector<Unit> units_;
  std::mutex mutex_;
};

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.contiguous().const_data_ptr(), b.contiguous().const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace managed_test
