// Binds the limit on the memory of the process.

#include "arcgrad/runtime/memory_limit.h"
#include "common.h"

namespace arcgrad::bindings {

void init_memory(nb::module_& m) {
  m.def(
      "set_memory_limit",
      [](const Integer& num_bytes) {
        set_memory_limit(to_int64("set_memory_limit", "the number of bytes", num_bytes));
      },
      "num_bytes"_a.none(), R"(
Sets how many bytes the process may use. None, the default, is no limit.

Operations check the limit before they allocate large arrays, and raise MemoryError. Graphs and
gradients are then as before. What counts is the memory of the whole process that the system holds in
RAM, including that of other libraries; but only arcgrad checks it.

Raises:
    ValueError: If the number is less than 1 or does not fit 64 bits.

>>> import arcgrad as ag
>>> ag.set_memory_limit(100 << 30)
>>> ag.get_memory_limit()
107374182400
>>> ag.set_memory_limit(None)
)");
  m.def("get_memory_limit", &get_memory_limit, R"(
Returns the limit that :func:`set_memory_limit` sets, in bytes, or None.

>>> import arcgrad as ag
>>> ag.get_memory_limit() is None
True
)");
}

}  // namespace arcgrad::bindings
