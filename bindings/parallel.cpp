#include "arcgrad/runtime/parallel.h"

#include "arcgrad/runtime/thresholds.h"
#include "common.h"

namespace arcgrad::bindings {
namespace {

/// One call of parallel_for. An exception says which call it came from, and one that is meant to
/// end the program, such as that of Ctrl-C, ends the others too.
nb::object call(nb::handle function, nb::handle item, size_t index, size_t count) {
  poll_interrupt();
  try {
    return function(item);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) rethrow_and_stop();
    if (nb::hasattr(error.value(), "add_note"))  // since Python 3.11
      error.value().attr("add_note")(text("parallel_for: raised by call ", index, " of ", count));
    throw;
  }
}

}  // namespace

void init_parallel(nb::module_& m) {
  m.def("get_num_threads", &get_num_threads, R"(
How many threads list arguments and :func:`backward` use, the calling one included.

By default ``ARCGRAD_NUM_THREADS``, else ``OMP_NUM_THREADS``, else the processors this process may
use. In a forked child, and in a daemonic one of ``multiprocessing`` such as a DataLoader worker, it
is ``ARCGRAD_NUM_THREADS``, else one; such processes work side by side. Importing
arcgrad warns of an ``ARCGRAD_NUM_THREADS`` that is not a whole number between 1 and 4096.

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
  m.def("check_environment", &check_environment,
        "Raises ValueError if ``ARCGRAD_NUM_THREADS`` is set but is no number of threads.");
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
            results[i] = call(function, items[i], i, items.size());
          });
        }
        nb::list out;
        for (nb::object& result : results) out.append(std::move(result));
        return out;
      },
      "function"_a, "iterable"_a, R"(
Calls ``function`` on each item from the threads of the pool and returns the results in order.

Operations on graphs release the GIL, so several calls make progress at once. All calls are made;
then the first exception, if any, is raised, with a note of the call it came from. Ctrl-C and
``SystemExit`` let no further calls start. Calls from inside another parallel call run inline.

Args:
    function: Called with one item.
    iterable: The items.

>>> import arcgrad as ag
>>> ag.parallel_for(lambda n: ag.forward_score(ag.chain_graph([0] * n)).item(), range(3))
[0.0, 0.0, 0.0]
)");
  m.def(
      "set_threshold",
      [](const std::string& name, int64_t value) { return set_threshold(name, value); }, "name"_a,
      "value"_a,
      "For tests: sets a size at which the code takes another path, and returns its old value.");
}

}  // namespace arcgrad::bindings
