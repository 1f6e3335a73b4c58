#include "arcgrad/parallel.h"

#include "common.h"

namespace arcgrad::bindings {

void init_parallel(nb::module_& m) {
  m.def("get_num_threads", &get_num_threads, R"(
How many threads list arguments and :func:`backward` use, the calling one included.

By default ``ARCGRAD_NUM_THREADS``, else ``OMP_NUM_THREADS``, else the processors this process may
use; one thread in a forked child such as a DataLoader worker.

On Linux, the threads of OpenMP are used where the program has as many of them, as it does after
``import torch``: after each operation of torch they look for more work, and would take the
processors from other threads. ``ARCGRAD_OPENMP=0`` in the environment keeps them apart.

>>> import arcgrad as ag
>>> ag.get_num_threads() >= 1
True
)");
  m.def(
      "set_num_threads",
      [](int64_t num_threads) {
        set_num_threads(to_int32("set_num_threads", "the number of threads", num_threads));
      },
      "num_threads"_a, R"(
Sets how many threads list arguments and :func:`backward` use. Results do not depend on it.

Raises:
    ValueError: If the number is not between 1 and 4096.

>>> import arcgrad as ag
>>> before = ag.get_num_threads()
>>> ag.set_num_threads(2)
>>> ag.get_num_threads()
2
>>> ag.set_num_threads(before)
)");
  m.def(
      "parallel_for",
      [](nb::callable function, nb::iterable iterable) {
        std::vector<nb::object> items, results;
        for (nb::handle item : iterable) items.push_back(nb::borrow(item));
        results.resize(items.size());
        {
          nb::gil_scoped_release release;
          parallel_for(items.size(), [&](size_t i) {
            nb::gil_scoped_acquire acquire;
            results[i] = function(items[i]);
          });
        }
        nb::list out;
        for (nb::object& result : results) out.append(std::move(result));
        return out;
      },
      "function"_a, "iterable"_a, R"(
Calls ``function`` on each item from the threads of the pool and returns the results in order.

Operations on graphs release the GIL, so several calls make progress at once. All calls are made;
then the first exception, if any, is raised. Calls from inside another parallel call run inline.

Args:
    function: Called with one item.
    iterable: The items.

>>> import arcgrad as ag
>>> ag.parallel_for(lambda n: ag.forward_score(ag.chain_graph([0] * n)).item(), range(3))
[0.0, 0.0, 0.0]
)");
}

}  // namespace arcgrad::bindings
