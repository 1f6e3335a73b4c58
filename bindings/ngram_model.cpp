// Bindings of compact n-gram models, with their documentation.

#include "arcgrad/search/ngram_model.h"

#include <nanobind/stl/shared_ptr.h>

#include "arcgrad/search/arpa.h"
#include "arcgrad/search/ngram_builder.h"
#include "common.h"

namespace arcgrad::bindings {
namespace {

using Ints = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::shared_ptr<const NgramModel> from_arrays(const std::vector<std::string>& names,
                                              const std::vector<Ints>& ngrams,
                                              const std::vector<Floats>& scores,
                                              const std::vector<Floats>& back_offs) {
  constexpr const char* kOp = "compact";
  require(ngrams.size() == scores.size() && ngrams.size() == back_offs.size(), kOp,
          "there must be scores and back-off weights for each order");
  NameTable table;
  for (const std::string& name : names)
    require(table.add(name).second, kOp, "names of words must differ, but ", name, " occurs again");
  std::vector<NgramList> lists(ngrams.size());
  for (size_t n = 0; n < ngrams.size(); ++n) {
    const size_t count = ngrams[n].shape(0) * ngrams[n].shape(1);
    require(ngrams[n].shape(1) == n + 1 && scores[n].size() == ngrams[n].shape(0) &&
                back_offs[n].size() == scores[n].size(),
            kOp, "the arrays of order ", n + 1, " must have the same number of n-grams");
    for (size_t i = 0; i < count; ++i) {
      const int32_t word = ngrams[n].data()[i];
      require(word >= 0 && word < static_cast<int32_t>(names.size()), kOp, "words must be below ",
              names.size(), ", but one is ", word);
      lists[n].words.push_back(static_cast<uint32_t>(word));
    }
    for (size_t i = 0; i < scores[n].size(); ++i) {
      lists[n].scores.push_back(static_cast<float>(scores[n].data()[i]));
      lists[n].back_offs.push_back(static_cast<float>(back_offs[n].data()[i]));
    }
  }
  return run_op(kOp, [&] { return build_ngram_model(kOp, table, std::move(lists)); });
}

/// The scores of words, and of the end.
std::vector<float> word_scores(const NgramModel& model, const std::vector<std::string>& words,
                               bool start, bool end) {
  std::vector<float> out;
  uint32_t state = start ? model.start_state() : 0;
  for (const std::string& word : words) {
    int32_t number = model.find(word);
    if (number < 0) number = model.unknown_word();
    if (number < 0) {
      out.push_back(-std::numeric_limits<float>::infinity());
      state = 0;
      continue;
    }
    const NgramStep step = model.next(state, static_cast<uint32_t>(number));
    out.push_back(step.score);
    state = step.state;
  }
  if (end && model.end_word() >= 0) out.push_back(model.end_score(state));
  return out;
}

}  // namespace

void init_ngram_model(nb::module_& m) {
  nb::class_<NgramModel>(m, "CompactModel", nb::is_final(), R"(
A back-off language model as compact sorted arrays, for decoding.

It scores like :class:`arcgrad.ngram.Model`, but is read-only and small: 12 bytes for each n-gram and
12 for each history. A file by :meth:`save` is mapped into memory, so it opens in milliseconds, and
processes that use it share its pages. Models are made by :func:`arcgrad.ngram.load_compact` and
:meth:`arcgrad.ngram.Model.compact`.

>>> import arcgrad as ag
>>> model = ag.ngram.estimate(ag.ngram.count(["a b", "b a"], 2, tokenize=str.split)).compact()
>>> model
CompactModel(order 2, 4 + 6 n-grams)
)")
      .def_static(
          "load",
          [](const std::string& path) {
            return run_op("load_ngrams", [&] { return load_ngram_model(path); });
          },
          "path"_a, "Reads an ARPA file, or maps a file by save().")
      .def_static(
          "parse",
          [](nb::bytes content, const std::string& name) {
            const std::string_view text(content.c_str(), content.size());
            return run_op("load_ngrams", [&] { return parse_arpa(name, text); });
          },
          "content"_a, "name"_a, "Reads the content of an ARPA file.")
      .def_static("from_arrays", &from_arrays, "names"_a, "ngrams"_a, "scores"_a, "back_offs"_a,
                  "A model from n-grams, scores and back-off weights of each order.")
      .def(
          "save",
          [](const NgramModel& self, const std::string& path) {
            run_op("save", [&] { self.save(path); });
          },
          "path"_a, "Writes a file that load() maps; an existing one is replaced atomically.")
      .def(
          "verify",
          [](const NgramModel& self) { run_op("verify", [&] { self.verify("the model"); }); },
          "Raises ValueError unless the content fits its checksum. Files above 64 MB are not "
          "checked "
          "completely when they are mapped.")
      .def(
          "scores",
          [](const NgramModel& self, const std::vector<std::string>& words, Flag start, Flag end) {
            return word_scores(self, words, start, end);
          },
          "words"_a, nb::kw_only(), "start"_a = true, "end"_a = true,
          "The natural logarithm of the probability of each word, and of the end. Unknown words "
          "are ``<unk>``; if the model lacks that, they score ``-inf``.")
      .def(
          "words",
          [](const NgramModel& self) {
            nb::list out;
            for (int32_t i = 0; i < self.num_words(); ++i) {
              const std::string_view name = self.name(i);
              out.append(nb::steal(PyUnicode_DecodeUTF8(
                  name.data(), static_cast<Py_ssize_t>(name.size()), "replace")));
            }
            return out;
          },
          "All words, with ``<s>``, ``</s>`` and ``<unk>`` if the model has them.")
      .def(
          "find",
          [](const NgramModel& self, const std::vector<std::string>& words) {
            std::vector<int32_t> out;
            for (const std::string& word : words) out.push_back(self.find(word));
            return out;
          },
          "words"_a, "The number of each word in :meth:`words`, or -1.")
      .def_prop_ro(
          "order", [](const NgramModel& self) { return self.order(); },
          "The length of the longest n-grams.")
      .def_prop_ro(
          "sizes",
          [](const NgramModel& self) {
            const auto counts = self.counts();
            return nb::tuple(nb::cast(std::vector<uint64_t>(counts.begin(), counts.end())));
          },
          "The number of n-grams of each order, from 1.")
      .def_prop_ro(
          "unknown", [](const NgramModel& self) { return self.unknown_word(); },
          "The number of ``<unk>``, or -1.")
      .def_prop_ro(
          "num_bytes", [](const NgramModel& self) { return self.num_bytes(); },
          "The size of the model, in memory and as a file.")
      .def("__repr__", [](const NgramModel& self) {
        std::string sizes;
        for (const uint64_t count : self.counts()) sizes += text(sizes.empty() ? "" : " + ", count);
        return text("CompactModel(order ", self.order(), ", ", sizes, " n-grams)");
      });
}

}  // namespace arcgrad::bindings
