#include "arcgrad/algorithms/scaled.h"

#include "arcgrad/runtime/isa.h"

namespace arcgrad {

void split_exp(const double* weight, int64_t count, double* mantissa, double* exponent) {
  ARCGRAD_LOOPS(split_exp)(weight, count, mantissa, exponent);
}

template <class T>
bool bounded_exp(const T* weight, int64_t count, double limit, double* mantissa, double* exponent) {
  return ARCGRAD_LOOPS(bounded_exp<T>)(weight, count, limit, mantissa, exponent);
}
template bool bounded_exp(const float*, int64_t, double, double*, double*);
template bool bounded_exp(const double*, int64_t, double, double*, double*);

template <class T>
bool plain_exp(const T* weight, int64_t count, double* out) {
  return ARCGRAD_LOOPS(plain_exp<T>)(weight, count, out);
}
template bool plain_exp(const float*, int64_t, double*);
template bool plain_exp(const double*, int64_t, double*);

}  // namespace arcgrad
