// Bindings of the decoder: lexicon trees, grammars, searches. The Python package wraps and
// documents them.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <mutex>

#include "arcgrad/search/beam_stream.h"
#include "common.h"
#include "object_grammar.h"

namespace arcgrad::bindings {
namespace {

using Spellings = std::vector<std::vector<int32_t>>;
using Scores = nb::ndarray<nb::ro, nb::device::cpu>;

arcgrad::Sequences to_sequences(const Spellings& spellings) {
  arcgrad::Sequences out;
  for (const auto& spelling : spellings) {
    out.labels.insert(out.labels.end(), spelling.begin(), spelling.end());
    out.end_sequence();
  }
  return out;
}

using SpelledTree = std::pair<std::shared_ptr<const LexiconTree>, std::vector<int32_t>>;

/// The tree of words spelled by labels, and the words that cannot be spelled.
template <class WordAt>
SpelledTree spell_words(size_t count, const WordAt& word_at, const std::vector<std::string>& labels,
                        const std::string& prefix) {
  const Speller speller(labels);
  arcgrad::Sequences spellings;
  std::vector<int32_t> words, unspelled;
  for (size_t i = 0; i < count; ++i) {
    const std::string_view word = word_at(i);
    if (word.empty()) continue;
    if (!speller.spell(prefix, word, static_cast<int32_t>(i), spellings, words))
      unspelled.push_back(static_cast<int32_t>(i));
  }
  return {std::make_shared<const LexiconTree>(spellings, words), std::move(unspelled)};
}

/// Frames of one example.
struct ScoreRows {
  const void* data;
  int64_t frames, labels, row_stride, col_stride;
  bool is_double;

  std::span<const float> row(int64_t t, std::vector<float>& copy) const {
    const int64_t begin = t * row_stride;
    if (!is_double && col_stride == 1)
      return {static_cast<const float*>(data) + begin, static_cast<size_t>(labels)};
    copy.resize(static_cast<size_t>(labels));
    for (int64_t d = 0; d < labels; ++d)
      copy[static_cast<size_t>(d)] =
          is_double ? static_cast<float>(static_cast<const double*>(data)[begin + d * col_stride])
                    : static_cast<const float*>(data)[begin + d * col_stride];
    return copy;
  }
  void push_to(BeamStream& stream) const {
    std::vector<float> copy;
    for (int64_t t = 0; t < frames; ++t) stream.push(row(t, copy));
  }
};

/// The frames of an array [T, C].
ScoreRows to_rows(const Scores& scores) {
  constexpr const char* kOp = "decode";
  const bool is_double = scores.dtype() == nb::dtype<double>();
  require(is_double || scores.dtype() == nb::dtype<float>(), kOp,
          "scores must be float32 or float64, but they have another type");
  require(scores.ndim() == 2, kOp, "scores must have 2 dimensions, but they have ", scores.ndim());
  return {scores.data(),
          static_cast<int64_t>(scores.shape(0)),
          static_cast<int64_t>(scores.shape(1)),
          scores.stride(0),
          scores.stride(1),
          is_double};
}

nb::tuple from_transcript(const Transcript& result) {
  nb::list tokens, words;
  for (const auto& [label, begin, end] : result.tokens)
    tokens.append(nb::make_tuple(label, begin, end));
  for (const Transcript::Word& word : result.words)
    words.append(nb::make_tuple(word.word, word.begin, word.end, word.confidence));
  return nb::make_tuple(result.score, result.acoustic, result.language, result.hotword,
                        result.is_complete, tokens, words, result.stable_words,
                        result.stable_tokens);
}

nb::list from_transcripts(const std::vector<Transcript>& results) {
  nb::list out;
  for (const Transcript& result : results) out.append(from_transcript(result));
  return out;
}

nb::dict from_report(const SearchReport& report) {
  nb::dict out;
  out["frames"] = report.frames;
  out["hypotheses"] = report.hypotheses;
  out["most_hypotheses"] = report.most_hypotheses;
  out["below_beam"] = report.below_beam;
  out["beyond_active"] = report.beyond_active;
  out["unread_tokens"] = report.tokens;
  return out;
}

bool needs_lattice(const BeamDecoder& decoder, int64_t nbest, bool confidences) {
  return confidences || (nbest > 1 && decoder.options().merge == Merge::max);
}

/// A stream that one thread uses at a time.
class LockedStream {
 public:
  LockedStream(std::shared_ptr<const BeamDecoder> decoder, bool keeps_lattice)
      : stream_(std::move(decoder), keeps_lattice) {}
  /// Runs `use(stream)` without the GIL.
  template <class Use>
  auto with(const Use& use) {
    nb::gil_scoped_release release;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    require(lock.owns_lock(), "stream", "a stream must be used by one thread at a time, but ",
            "another one uses it");
    return use(stream_);
  }

 private:
  std::mutex mutex_;
  BeamStream stream_;
};

nb::tuple decode(const std::shared_ptr<const BeamDecoder>& decoder,
                 const std::vector<Scores>& scores, int64_t nbest, bool confidences) {
  constexpr const char* kOp = "decode";
  require(nbest >= 1, kOp, "nbest must be 1 or more, but it is ", nbest);
  std::vector<ScoreRows> rows;
  for (const Scores& one : scores) rows.push_back(to_rows(one));
  std::vector<std::vector<Transcript>> results(rows.size());
  std::vector<SearchReport> reports(rows.size());
  run_op(kOp, [&] {
    for_batch(kOp, rows.size(), [&](size_t b) {
      BeamStream stream(decoder, needs_lattice(*decoder, nbest, confidences));
      rows[b].push_to(stream);
      results[b] = stream.finish(nbest, confidences);
      reports[b] = stream.report();
    });
  });
  nb::list out, out_reports;
  for (size_t b = 0; b < rows.size(); ++b) {
    out.append(from_transcripts(results[b]));
    out_reports.append(from_report(reports[b]));
  }
  return nb::make_tuple(out, out_reports);
}

}  // namespace

void init_search(nb::module_& m) {
  nb::class_<LexiconTree>(m, "LexiconTree", "Words as a tree of the labels that spell them.")
      .def(
          "__init__",
          [](LexiconTree* self, const Spellings& spellings, const std::vector<int32_t>& words) {
            new (self) LexiconTree(to_sequences(spellings), words);
          },
          "spellings"_a, "words"_a)
      .def_static(
          "from_words",
          [](const std::vector<std::string>& words, const std::vector<std::string>& labels,
             const std::string& prefix) {
            return run_op("lexicon", [&] {
              return spell_words(
                  words.size(), [&](size_t i) { return std::string_view(words[i]); }, labels,
                  prefix);
            });
          },
          "words"_a, "labels"_a, "prefix"_a,
          "The tree of words spelled by labels, and the words that cannot be spelled.")
      .def_static(
          "from_model",
          [](const std::shared_ptr<const NgramModel>& model, const std::vector<std::string>& labels,
             const std::string& prefix) {
            return run_op("lexicon", [&] {
              return spell_words(
                  static_cast<size_t>(model->num_words()),
                  [&](size_t i) {
                    const auto word = static_cast<int32_t>(i);
                    const bool is_special = word == model->start_word() ||
                                            word == model->end_word() ||
                                            word == model->unknown_word();
                    return is_special ? std::string_view() : model->name(word);
                  },
                  labels, prefix);
            });
          },
          "model"_a, "labels"_a, "prefix"_a,
          "The same for the words of a model, with their numbers.")
      .def_prop_ro(
          "num_nodes", [](const LexiconTree& t) { return t.num_nodes(); }, "The number of nodes.")
      .def_prop_ro(
          "num_words", [](const LexiconTree& t) { return t.num_words(); }, "The number of words.");

  m.def(
      "spell",
      [](const std::string& word, const std::vector<std::string>& labels,
         const std::string& prefix) {
        arcgrad::Sequences spellings;
        std::vector<int32_t> owners;
        Speller(labels).spell(prefix, word, 0, spellings, owners);
        Spellings out;
        for (size_t i = 0; i < spellings.size(); ++i)
          out.emplace_back(spellings[i].begin(), spellings[i].end());
        return out;
      },
      "word"_a, "labels"_a, "prefix"_a, "The spellings of a word by labels.");

  nb::class_<Grammar>(m, "Grammar", "A language model as a search sees it.")
      .def_static(
          "from_model",
          [](const std::shared_ptr<const NgramModel>& model, nb::handle numbers, Flag has_start,
             Flag has_end) -> std::shared_ptr<Grammar> {
            std::vector<int32_t> values;
            if (numbers.is_none()) {
              for (int32_t i = 0; i < model->num_words(); ++i) values.push_back(i);
            } else {
              const Column column = to_ints("grammar", "numbers", numbers);
              values.assign(column.begin(), column.end());
            }
            return ngram_grammar(model, std::move(values), has_start, has_end);
          },
          "model"_a, "numbers"_a.none(), "has_start"_a, "has_end"_a,
          "An n-gram model; word i of the lexicon is numbers[i], or i.")
      .def_static(
          "from_graph",
          [](const Graph& graph, const std::string& semiring,
             int64_t unknown) -> std::shared_ptr<Grammar> {
            const Graph input = graph.snapshot();
            const Semiring kind = to_semiring("grammar", semiring);
            const int32_t label = to_int32("grammar", "unknown", unknown);
            return run_op("grammar", [&] { return graph_grammar(input, kind, label); });
          },
          "graph"_a, "semiring"_a, "unknown"_a, "An acceptor of words.")
      .def_static(
          "from_object",
          [](nb::object model, std::vector<float> estimates,
             Flag has_log_probs) -> std::shared_ptr<Grammar> {
            return std::make_shared<ObjectGrammar>(std::move(model), std::move(estimates),
                                                   has_log_probs);
          },
          "model"_a, "estimates"_a, "has_log_probs"_a,
          "A model with methods start, next and end_score of hashable states and word numbers.");

  nb::class_<BeamDecoder>(m, "BeamDecoder", "A beam search that is composed on the fly.")
      .def(
          "__init__",
          [](BeamDecoder* self, const Tokens& tokens, const std::vector<int32_t>& roles,
             std::shared_ptr<LexiconTree> lexicon, std::shared_ptr<Grammar> grammar,
             const Spellings& phrases, const std::vector<float>& boosts, double beam,
             int64_t max_active, double token_beam, int64_t max_tokens, Flag is_sum,
             double lm_weight, double word_score, double unknown_score, double silence_score,
             Flag is_open, Flag has_label_words,
             const std::optional<std::pair<double, std::vector<uint32_t>>>& unfinished,
             int32_t compared_words, Flag like_flashlight, double confidence_scale) {
            DecoderParts parts{tokens, {}, std::move(lexicon), std::move(grammar), nullptr};
            for (const int32_t role : roles) parts.roles.push_back(static_cast<TokenRole>(role));
            if (!phrases.empty())
              parts.hotwords = std::make_shared<const HotwordMatcher>(to_sequences(phrases), boosts,
                                                                      tokens.num_labels());
            DecoderOptions options;
            options.beam = beam;
            options.max_active = max_active;
            options.token_beam = token_beam;
            options.max_tokens = max_tokens;
            options.merge = is_sum ? Merge::sum : Merge::max;
            options.lm_weight = lm_weight;
            options.word_score = word_score;
            options.unknown_score = unknown_score;
            options.silence_score = silence_score;
            options.is_open = is_open;
            options.has_label_words = has_label_words;
            if (unfinished)
              options.unfinished = UnfinishedWords{.unknown_score = unfinished->first,
                                                   .letters = unfinished->second};
            options.compared_words = compared_words;
            options.like_flashlight = like_flashlight;
            options.confidence_scale = confidence_scale;
            new (self) BeamDecoder(std::move(parts), options);
          },
          "tokens"_a, "roles"_a, "lexicon"_a, "grammar"_a.none(), "phrases"_a, "boosts"_a,
          nb::kw_only(), "beam"_a, "max_active"_a, "token_beam"_a, "max_tokens"_a, "is_sum"_a,
          "lm_weight"_a, "word_score"_a, "unknown_score"_a, "silence_score"_a, "is_open"_a,
          "has_label_words"_a, "unfinished"_a.none(), "compared_words"_a, "like_flashlight"_a,
          "confidence_scale"_a)
      .def("decode", &decode, "scores"_a, "nbest"_a, "confidences"_a,
           "The results of each example, and a report of each search.");

  nb::class_<LockedStream>(m, "BeamStream", "A search that reads frames as they come.")
      .def(nb::init<std::shared_ptr<const BeamDecoder>, bool>(), "decoder"_a, "keeps_lattice"_a)
      .def(
          "push",
          [](LockedStream& self, const Scores& scores) {
            const ScoreRows rows = to_rows(scores);
            self.with([&](BeamStream& stream) { rows.push_to(stream); });
          },
          "scores"_a, "Reads frames.")
      .def(
          "finish",
          [](LockedStream& self, int64_t nbest, Flag confidences) {
            return from_transcripts(self.with(
                [&](const BeamStream& stream) { return stream.finish(nbest, confidences); }));
          },
          "nbest"_a, "confidences"_a, "The results if the input ended here.")
      .def(
          "partial",
          [](LockedStream& self) {
            return from_transcript(
                self.with([](const BeamStream& stream) { return stream.partial(); }));
          },
          "The best result so far, with a partial word at the end.")
      .def(
          "lattice",
          [](LockedStream& self, double lattice_beam, Flag acoustic) {
            return self.with(
                [&](const BeamStream& stream) { return stream.lattice(lattice_beam, acoustic); });
          },
          "lattice_beam"_a, "acoustic"_a, "All remaining paths if the input ended here.")
      .def(
          "report",
          [](LockedStream& self) {
            return from_report(self.with([](const BeamStream& stream) { return stream.report(); }));
          },
          "What was read and pruned.")
      .def(
          "final_cost",
          [](LockedStream& self) {
            return self.with([](const BeamStream& stream) { return stream.final_cost(); });
          },
          "How much better the best path is than the best one that may end here.")
      .def(
          "num_frames",
          [](LockedStream& self) {
            return self.with([](const BeamStream& stream) { return stream.num_frames(); });
          },
          "How many frames were read.");
}

}  // namespace arcgrad::bindings
