#include "support/contain.h"

#include "support/check.h"

namespace kintsugi {

CaughtFailure describeCaught(const std::exception& error) {
  return {error.what(), dynamic_cast<const InternalError*>(&error) != nullptr};
}

}  // namespace kintsugi
