#pragma once
/// \file
/// One run of a template: its resource limits, and the owner of its objects.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/text/jinja/value.h>

namespace tessera::text::jinja {

/// Templates come with models from any source, so their running time and memory are limited. A long conversation with
/// tools takes about 100,000 steps.
struct Limits {
  std::size_t steps = 20'000'000;  ///< nodes evaluated, items iterated, values compared
  std::size_t bytes = 1u << 30;    ///< total size of all strings and lists created
  int depth = 400;                 ///< nesting of expressions, statements and macros
};

/// Not thread-safe: each run has its own.
class Machine {
 public:
  explicit Machine(const Limits& limits) : limits_(limits) {}

  /// Throws Fault when the limit of steps or bytes is reached. Call before doing the work.
  void step(std::size_t count = 1) {
    if (count > limits_.steps - steps_) fail_steps();
    steps_ += count;
  }
  void charge(std::size_t bytes) {
    if (bytes > limits_.bytes - bytes_) fail_bytes();
    bytes_ += bytes;
  }
  /// charge(count * size) without overflow.
  void charge(std::size_t count, std::size_t size) {
    if (size != 0 && count > limits_.bytes / size) fail_bytes();
    charge(count * size);
  }

  /// These create values and charge their memory.
  Value text(std::string text) {
    charge(text.size());
    return Value::of(std::move(text));
  }
  Value list(Values items, Sequence::Kind kind = Sequence::Kind::list) {
    charge(items.size(), sizeof(Value));
    return Value::of(Sequence{kind, std::move(items), 1, 0, ""});
  }
  Value dict(Members members) {
    charge(members.size(), 2 * sizeof(Value));
    return Value::of(Dict{std::move(members)});
  }

  /// An object that lives as long as the run.
  template <class T, class... Arguments>
  T& make(Arguments&&... arguments) {
    charge(sizeof(T));
    auto object = std::make_unique<T>(std::forward<Arguments>(arguments)...);
    T& made = *object;
    objects_.push_back(std::move(object));
    return made;
  }

  const Limits& limits() const { return limits_; }

  /// Adds a nesting level for its lifetime; throws Fault beyond the limit.
  class Level {
   public:
    explicit Level(Machine& machine) : machine_(machine) {
      if (machine.depth_ >= machine.limits_.depth) machine.fail_depth();
      ++machine.depth_;
    }
    ~Level() { --machine_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Machine& machine_;
  };

 private:
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_bytes() const;
  [[noreturn]] void fail_depth() const;

  Limits limits_;
  std::size_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

}  // namespace tessera::text::jinja
