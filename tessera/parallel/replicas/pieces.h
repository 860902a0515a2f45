#pragma once
/// \file
/// Takes values that consist of tensors apart and puts them together: arguments are cut into parts for replicas,
/// results are joined.
///
/// Understood types: at::Tensor, std::optional, vector, array, pair, tuple, map (its values). Your own type T is
/// supported if it has one of
///   template <class F> void visit_tensors(T& value, F&& each);   // in T's namespace: each(tensor) for all tensors
///   template <> struct tessera::parallel::RowsOf<T>              // arguments that are more than their tensors
/// The first serves arguments and results; rows_of_batch.h is an example of the second.

#include <ATen/core/Tensor.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::parallel {

/// static std::int64_t rows(const T&);  static T slice(const T&, std::int64_t first, std::int64_t count);
/// and, for replicas on devices:        static T to(T rows, c10::Device device);
template <class T>
struct RowsOf;

namespace pieces {

/// An argument that is passed whole to every replica.
template <class T>
struct Whole {
  T value;  ///< traversed like any other
};
template <class T>
Whole<T> whole(T value) {
  return {std::move(value)};
}

namespace detail {

template <class T>
inline constexpr bool is_whole = false;
template <class T>
inline constexpr bool is_whole<Whole<T>> = true;

template <class T>
concept HasRows = requires(const T& value) {
  { RowsOf<T>::rows(value) } -> std::convertible_to<std::int64_t>;
};
template <class T>
concept HasTo = requires(T value, c10::Device device) {
  { RowsOf<T>::to(std::move(value), device) } -> std::convertible_to<T>;
};
template <class T>
concept HasVisit = requires(T& value) { visit_tensors(value, [](at::Tensor&) {}); };

/// Calls each(element) for the elements of a container; other types have no elements.
template <class T>
struct Elements {
  static constexpr bool known = false, of_tensors = false;
};
template <class T>
struct Elements<std::optional<T>> {
  static constexpr bool known = true, of_tensors = Elements<T>::of_tensors;
  template <class C, class F>
  static void visit(C& value, F&& each) {
    if (value) each(*value);
  }
};
template <class T>
struct Range {
  static constexpr bool known = true, of_tensors = Elements<T>::of_tensors;
  template <class C, class F>
  static void visit(C& value, F&& each) {
    for (auto& element : value) each(element);
  }
};
template <class T>
struct Elements<std::vector<T>> : Range<T> {};
template <>
struct Elements<std::vector<bool>> {  // std::vector<bool> has no references to elements
  static constexpr bool known = false, of_tensors = false;
};
template <class T, std::size_t N>
struct Elements<std::array<T, N>> : Range<T> {};
template <class K, class T, class L>
struct Elements<std::map<K, T, L>> {
  static constexpr bool known = true, of_tensors = Elements<T>::of_tensors;
  template <class C, class F>
  static void visit(C& value, F&& each) {
    for (auto& element : value) each(element.second);
  }
};
template <class... Ts>
struct Elements<std::tuple<Ts...>> {
  static constexpr bool known = true, of_tensors = (Elements<Ts>::of_tensors && ...);
  template <class C, class F>
  static void visit(C& value, F&& each) {
    std::apply([&](auto&... elements) { (each(elements), ...); }, value);
  }
};
template <class A, class B>
struct Elements<std::pair<A, B>> {
  static constexpr bool known = true, of_tensors = Elements<A>::of_tensors && Elements<B>::of_tensors;
  template <class C, class F>
  static void visit(C& value, F&& each) {
    each(value.first);
    each(value.second);
  }
};
template <>
struct Elements<at::Tensor> {
  static constexpr bool known = false, of_tensors = true;
};
template <HasVisit T>
struct Elements<T> {
  static constexpr bool known = true, of_tensors = true;
  template <class C, class F>
  static void visit(C& value, F&& each) {
    visit_tensors(const_cast<std::remove_const_t<C>&>(value), each);
  }
};

/// Calls each(tensor) for all tensors in `value`, in a fixed order.
template <class T, class F>
void visit_all(T& value, const F& each) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Plain, at::Tensor>)
    each(value);
  else if constexpr (Elements<Plain>::known)
    Elements<Plain>::visit(value, [&](auto& element) { visit_all(element, each); });
}

}  // namespace detail

/// Whether a result consists of tensors.
template <class T>
concept gatherable = detail::Elements<T>::of_tensors;

/// The type that a function receives for an argument of type T.
template <class T>
struct Given {
  using type = T;  ///< unchanged
};
template <class T>
struct Given<Whole<T>> {
  using type = T;  ///< the argument of whole()
};
template <std::size_t N>
struct Given<char[N]> {
  using type = const char*;  ///< a string literal
};
template <class T>
using given_t = typename Given<T>::type;

/// The tensors of a call's arguments, and how they are scattered.
class Collected {
 public:
  /// A tensor of an argument, and how it is distributed.
  struct Input {
    at::Tensor tensor;   ///< as given
    bool whole = false;  ///< true: every replica gets the whole tensor; false: its part of the rows
  };

  /// Adds the tensors of one more argument. Throws InputError if its number of rows differs from that of earlier
  /// arguments.
  template <class T>
  void next_argument(const T& value) {
    ++argument_;
    if constexpr (detail::is_whole<T>) {
      detail::visit_all(value.value, [&](const at::Tensor& tensor) { inputs_.push_back({tensor, true}); });
    } else if constexpr (detail::HasRows<T>) {
      found_rows(RowsOf<T>::rows(value));
    } else {
      detail::visit_all(value, [&](const at::Tensor& tensor) { add(tensor); });
    }
  }

  /// In argument order.
  const std::vector<Input>& inputs() const { return inputs_; }
  /// Number of rows of the scattered tensors; empty when nothing is scattered.
  std::optional<std::int64_t> rows() const { return rows_; }

 private:
  void add(const at::Tensor& tensor);
  /// Throws InputError naming both arguments when they differ in rows.
  void found_rows(std::int64_t rows);

  std::vector<Input> inputs_;
  std::optional<std::int64_t> rows_;
  int argument_ = 0, first_ = 0;  // argument numbers from 1: the current one; the one that set `rows_`
};

/// One replica's part of the arguments: rows [first, first + count).
class Part {
 public:
  std::int64_t first = 0, count = 0;     ///< both 0 when nothing is scattered
  std::vector<at::Tensor> tensors = {};  ///< as Collected::inputs(), cut
  c10::Device device{c10::kCPU};         ///< the replica's device

  const at::Tensor& next() { return tensors.at(used_++); }  ///< the next of `tensors`; throws after the last

 private:
  std::size_t used_ = 0;
};

/// A copy of `value` with this part's tensors.
template <class T>
given_t<T> given(const T& value, Part& part) {
  if constexpr (detail::is_whole<T>) {
    given_t<T> result = value.value;
    detail::visit_all(result, [&](at::Tensor& tensor) { tensor = part.next(); });
    return result;
  } else if constexpr (detail::HasRows<T>) {
    T rows = RowsOf<T>::slice(value, part.first, part.count);
    if constexpr (detail::HasTo<T>) rows = RowsOf<T>::to(std::move(rows), part.device);
    return rows;
  } else if constexpr (std::is_array_v<T>) {
    return value;
  } else {
    T result = value;
    detail::visit_all(result, [&](at::Tensor& tensor) { tensor = part.next(); });
    return result;
  }
}

/// All tensors in `value`, in visiting order.
template <class T>
std::vector<at::Tensor> tensors_of(const T& value) {
  std::vector<at::Tensor> result;
  detail::visit_all(value, [&](const at::Tensor& tensor) { result.push_back(tensor); });
  return result;
}

/// Replaces the tensors that tensors_of() returns by `tensors`.
template <class T>
void set_tensors(T& value, std::vector<at::Tensor> tensors) {
  std::size_t next = 0;
  detail::visit_all(value, [&](at::Tensor& tensor) { tensor = std::move(tensors.at(next++)); });
}

}  // namespace pieces
}  // namespace tessera::parallel
