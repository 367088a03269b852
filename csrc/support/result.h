// Result<T, E>: a value or the reason why there is none.
//
// Used where failing is an expected outcome (a program that can't be captured, a text that does not parse);
// a bug of ours is KINTSUGI_CHECK's business instead. The error type is a parameter because this layer knows
// no diagnostics: `diag::Result<T>` is the form that the other layers use.
//
// Ownership: a Result owns its value or its error.
// Threads/GIL: a plain value; no global state, no GIL needed unless T needs it.
// Invalidation: references from value()/error() live as long as the Result and are not moved from.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "support/check.h"

namespace kintsugi {

template <typename T, typename E>
class [[nodiscard]] Result {
  static_assert(!std::is_reference_v<T> && !std::is_same_v<T, E>);

 public:
  using Value = T;
  using Error = E;

  // Implicit on purpose, so that `return value;` and `return Diagnostic(...);` both read naturally.
  template <typename U = T>
  requires(std::is_constructible_v<T, U&&>&& std::is_convertible_v<U&&, T> &&
           !std::is_same_v<std::remove_cvref_t<U>, Result> && !std::is_same_v<std::remove_cvref_t<U>, E>)
      Result(U&& value)
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}
  Result(E error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return *checkedValue(); }
  const T& value() const& { return const_cast<Result*>(this)->value(); }
  T&& value() && { return std::move(*checkedValue()); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return checkedValue(); }
  const T* operator->() const { return &value(); }

  const E& error() const& { return const_cast<Result*>(this)->checkedError(); }
  E&& error() && { return std::move(checkedError()); }
  E takeError() { return std::move(checkedError()); }

  template <typename U>
  T valueOr(U&& fallback) && {
    return ok() ? std::move(*this).value() : static_cast<T>(std::forward<U>(fallback));
  }

 private:
  T* checkedValue() {
    T* value = std::get_if<0>(&state_);
    KINTSUGI_CHECK(value != nullptr, "value() of a Result that holds an error");
    return value;
  }
  E& checkedError() {
    E* error = std::get_if<1>(&state_);
    KINTSUGI_CHECK(error != nullptr, "error() of a Result that holds a value");
    return *error;
  }

  std::variant<T, E> state_;
};

// Success carries nothing: `return {};` is success.
template <typename E>
class [[nodiscard]] Result<void, E> {
 public:
  using Value = void;
  using Error = E;

  Result() = default;
  Result(E error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }

  const E& error() const& {
    KINTSUGI_CHECK(error_.has_value(), "error() of a Result that succeeded");
    return *error_;
  }
  E takeError() {
    KINTSUGI_CHECK(error_.has_value(), "takeError() of a Result that succeeded");
    return std::move(*error_);
  }

 private:
  std::optional<E> error_;
};

}  // namespace kintsugi

// Leaves the enclosing function with the error of `expr` (a Result) when it failed; the value is dropped.
#define KINTSUGI_TRY(expr)                      \
  do {                                          \
    auto kintsugiTryResult = (expr);            \
    if (!kintsugiTryResult.ok()) [[unlikely]] { \
      return kintsugiTryResult.takeError();     \
    }                                           \
  } while (false)

#define KINTSUGI_TRY_CONCAT_INNER(a, b) a##b
#define KINTSUGI_TRY_CONCAT(a, b) KINTSUGI_TRY_CONCAT_INNER(a, b)

// `KINTSUGI_ASSIGN_OR_RETURN(auto x, f());` binds the value, or leaves the function with the error.
#define KINTSUGI_ASSIGN_OR_RETURN(lhs, expr)                              \
  auto KINTSUGI_TRY_CONCAT(kintsugiResult, __LINE__) = (expr);            \
  if (!KINTSUGI_TRY_CONCAT(kintsugiResult, __LINE__).ok()) [[unlikely]] { \
    return KINTSUGI_TRY_CONCAT(kintsugiResult, __LINE__).takeError();     \
  }                                                                       \
  lhs = std::move(KINTSUGI_TRY_CONCAT(kintsugiResult, __LINE__)).value()
