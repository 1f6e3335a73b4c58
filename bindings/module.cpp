// The extension module arcgrad._core.

#include <system_error>

#include "arcgrad/runtime/thread_count.h"
#include "common.h"

NB_MODULE(_core, m) {
  using namespace arcgrad::bindings;
  m.doc() = "The core of arcgrad.";
  // A traceback may keep a graph alive at exit, which nanobind would report as a leak.
  nb::set_leak_warnings(false);
  m.attr("__version__") = ARCGRAD_VERSION;
  m.attr("epsilon") = arcgrad::kEpsilon;
  m.attr("begin_label") = arcgrad::kBegin;
  m.attr("end_label") = arcgrad::kEnd;
  m.attr("phi") = arcgrad::kPhi;
  m.attr("rho") = arcgrad::kRho;
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const std::system_error& error) {
      nb::tuple args = nb::make_tuple(error.code().value(), error.what());
      PyErr_SetObject(PyExc_OSError, args.ptr());
    }
  });
  // In the main thread, PyErr_CheckSignals runs the handlers of pending signals, such as Ctrl-C.
  arcgrad::set_interrupt_check([] {
    nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
  // DataLoader workers are daemonic. A spawned process sets this flag after it has imported its
  // main module, so it cannot be checked when arcgrad is imported.
  arcgrad::set_worker_check([] {
    nb::gil_scoped_acquire acquire;
    const nb::object modules = nb::module_::import_("sys").attr("modules");
    const nb::object process = modules.attr("get")("multiprocessing.process");
    if (process.is_none()) return false;
    const nb::object is_daemon = process.attr("current_process")().attr("daemon");
    return PyObject_IsTrue(is_daemon.ptr()) == 1;
  });
  init_function(m);
  init_symbol_table(m);
  init_graph(m);
  init_ops(m);
  init_external_array(m);
  init_tape(m);
  init_parallel(m);
  init_memory(m);
  init_trellis(m);
  init_tokens(m);
  init_alignments(m);
  init_trie(m);
  init_io(m);
  init_gtn(m);
  init_ngram_model(m);
  init_search(m);
  init_align(m);
}
