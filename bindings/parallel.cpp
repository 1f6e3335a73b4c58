// Binds the thread pool and its settings.

#include "arcgrad/runtime/parallel.h"

#include "arcgrad/runtime/openmp.h"
#include "arcgrad/runtime/thread_count.h"
#include "arcgrad/runtime/thresholds.h"
#include "common.h"

namespace arcgrad::bindings {
namespace {

/// Makes one call of parallel_for. A note on its exception names the call. An exception that should
/// end the program, such as KeyboardInterrupt, stops the other calls.
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
The number of threads that :func:`backward` and operations on lists use, including the calling one.

The default is ``ARCGRAD_NUM_THREADS``, else ``OMP_NUM_THREADS``, else the number of processors that
this process may use, by its affinity mask and the CPU quota of its control groups. In a forked child and in a daemonic ``multiprocessing`` process, such as a
DataLoader worker, it is ``ARCGRAD_NUM_THREADS``, else 1, because several of them run at the same
time. Importing arcgrad warns if ``ARCGRAD_NUM_THREADS`` is not a whole number between 1 and 4096.

On Linux, arcgrad uses the threads of OpenMP if the program has loaded it, as ``import torch`` does,
and if their numbers are equal, while these threads spin after an operation of torch: they would slow
down other threads. Set ``ARCGRAD_OPENMP=0`` in the environment to use separate threads always.
Small batches, and batches beside programs that keep all processors busy, run on one thread.

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
Sets the number of threads that :func:`backward` and operations on lists use. Results do not depend
on it.

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
        "Raises ValueError if ``ARCGRAD_NUM_THREADS`` is set but is not a number of threads.");
  m.def(
      "parallel_for",
      [](nb::callable function, nb::iterable iterable) {
        std::vector<nb::object> items, results;
        for (nb::handle item : iterable) items.push_back(nb::borrow(item));
        results.resize(items.size());
        {
          nb::gil_scoped_release release;
          parallel_for_blocking(items.size(), [&](size_t i) {
            nb::gil_scoped_acquire acquire;
            results[i] = call(function, items[i], i, items.size());
          });
        }
        nb::list out;
        for (nb::object& result : results) out.append(std::move(result));
        return out;
      },
      "function"_a, "iterable"_a, R"(
Calls ``function`` on each item on several threads and returns the results in order.

Operations on graphs release the GIL, so several calls run at the same time. All calls are made even
if some raise; then the exception of the first of these is raised, with a note that names the call.
After Ctrl-C or ``SystemExit`` no further calls start. A nested call runs on its calling thread.

Args:
    function: Called with one item.
    iterable: The items.

>>> import arcgrad as ag
>>> ag.parallel_for(lambda n: ag.forward_score(ag.chain_graph([0] * n)).item(), range(3))
[0.0, 0.0, 0.0]
)");
  m.def("num_openmp_loops", &openmp::num_loops,
        "For tests: how many loops ran on the threads of OpenMP.");
  m.def(
      "set_threshold",
      [](const std::string& name, int64_t value) { return set_threshold(name, value); }, "name"_a,
      "value"_a,
      "For tests: sets an input size at which the code switches to another path, and returns the "
      "old value.");
}

}  // namespace arcgrad::bindings
