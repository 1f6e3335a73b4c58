// The `frames` kernel over the frames of a batch, and its rules on the tape. frames.h explains it.

#include "arcgrad/trellis/kernels/frames.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "arcgrad/core/semiring.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/runtime/thresholds.h"
#include "arcgrad/trellis/recorded_gradients.h"

namespace arcgrad::trellis {
namespace {

/// The entries of a frame in contiguous memory; copies them to `scratch` if necessary.
template <class T>
const T* frame_of(const Emissions& view, int32_t t, std::vector<T>& scratch) {
  const T* const from = static_cast<const T*>(view.data) + t * view.row_stride;
  if (view.col_stride == 1) return from;
  scratch.resize(static_cast<size_t>(view.labels));
  for (int32_t c = 0; c < view.labels; ++c) scratch[c] = from[c * view.col_stride];
  return scratch.data();
}

template <class T>
const FrameTable<T>& frame_loops() {
  if constexpr (sizeof(T) == 4)
    return ARCGRAD_LOOPS(frames_f32);
  else
    return ARCGRAD_LOOPS(frames_f64);
}

constexpr int32_t kFramesPerPoll = 256;

}  // namespace

Frames::Frames(const char* op, std::vector<Graph> emissions)
    : op_(op),
      emissions_(std::move(emissions)),
      sums_(emissions_.size()),
      scores_(emissions_.size(), kNegInf) {
  views_.reserve(emissions_.size());
  for (const Graph& graph : emissions_) views_.push_back(view_emissions(graph));
}

void Frames::for_each(const std::function<void(size_t)>& body) const {
  int64_t work = 0;
  for (const Emissions& view : views_) work += int64_t{view.frames} * view.labels;
  (work < thresholds.small_batch ? serial_for : parallel_for)(views_.size(), body);
}

void Frames::sum(size_t i) {
  dispatch(views_[i].dtype, [&](auto kind) { sum_frames<decltype(kind)>(i); });
}

template <class T>
void Frames::sum_frames(size_t i) {
  constexpr double kLargeProduct = 1e200;
  const Emissions& view = views_[i];
  const FrameTable<T>& loops = frame_loops<T>();
  const T* const data = static_cast<const T*>(view.data);
  std::vector<T> scratch;
  sums_[i].resize(static_cast<size_t>(view.frames));
  // `product` collects the sums of frames until it gets near the range of double.
  double score = 0.0, product = 1.0;
  T guess = 0;
  for (int32_t t = 0; t < view.frames; ++t) {
    if (t % kFramesPerPoll == 0) poll_interrupt();
    const T* const frame = frame_of(view, t, scratch);
    const T* const next = data + std::min(t + 1, view.frames - 1) * view.row_stride;
    FrameSum<T> s;
    loops.sum(frame, view.labels, guess, next, &s);
    if (s.has_bad) fail_bad(view, t, frame);
    sums_[i][t] = {static_cast<double>(s.scale), static_cast<double>(s.sum)};
    if (!(s.sum > T(0))) {
      score = kNegInf;
      continue;
    }
    guess = s.scale;
    score += sums_[i][t].scale;
    product *= sums_[i][t].sum;
    if (product > kLargeProduct || product < 1.0 / kLargeProduct) {
      score += std::log(product);
      product = 1.0;
    }
  }
  scores_[i] = score + std::log(product);
}

template <class T>
void Frames::fail_bad(const Emissions& view, int32_t t, const T* frame) const {
  const T* const bad = std::find_if_not(frame, frame + view.labels,
                                        [](T w) { return w < std::numeric_limits<T>::infinity(); });
  fail(op_, "the emission of label ", bad - frame, " at frame ", t, " is ", *bad,
       ", but it must be finite or -inf");
}

void Frames::add_rows(size_t i, double delta, const EmissionsGrad& grad, int64_t first,
                      int64_t count) const {
  dispatch(views_[i].dtype,
           [&](auto kind) { spread<decltype(kind)>(i, delta, grad, first, count); });
}

template <class T>
void Frames::spread(size_t i, double delta, const EmissionsGrad& grad, int64_t first,
                    int64_t count) const {
  const Emissions& view = views_[i];
  const FrameTable<T>& loops = frame_loops<T>();
  const auto spread_row = grad.is_unset ? loops.set : loops.add;
  const T* const data = static_cast<const T*>(view.data);
  if (count > 0 && grad.is_unset && view.col_stride == 1 && view.labels <= kShortFrame)
    return loops.set_rows(data + first * view.row_stride, view.row_stride, view.labels,
                          &sums_[i][static_cast<size_t>(first)], delta, grad.row<T>(first),
                          grad.row_stride, count);
  std::vector<T> scratch;
  for (int64_t t = first; t < first + count; ++t) {
    if (t % kFramesPerPoll == 0) poll_interrupt();
    const auto [scale, sum] = sums_[i][static_cast<size_t>(t)];
    // Kernels initialize blocks of rows from the last to the first, so prefetch the block before.
    const int64_t next = t + 1 < first + count ? t + 1 : std::max<int64_t>(first - count, 0);
    spread_row(frame_of(view, static_cast<int32_t>(t), scratch), view.labels, static_cast<T>(scale),
               static_cast<T>(delta / sum), grad.row<T>(t), data + next * view.row_stride);
  }
}

EmissionsGrads Frames::destinations(std::span<Gradient* const> grads) const {
  std::vector<int32_t> labels;
  for (const Emissions& view : views_) labels.push_back(view.labels);
  return {{grads.begin(), grads.end()}, std::move(labels)};
}

void Frames::add_gradients(std::span<const double> deltas, std::span<Gradient* const> grads) const {
  const EmissionsGrads to = destinations(grads);
  for_each([&](size_t i) {
    const EmissionsGrad grad = to.at(i);
    if (!grad.data) return;
    if (deltas[i] != 0.0 && scores_[i] != kNegInf)
      add_rows(i, deltas[i], grad, 0, views_[i].frames);
    else if (grad.is_unset)
      grad.clear(0, views_[i].frames);
  });
  to.join();
}

void Frames::add_hvps(std::span<const double> deltas, std::span<const Weights> tangents,
                      std::span<Gradient* const> grads, std::span<double> jvps) const {
  const EmissionsGrads to = destinations(grads);
  for_each([&](size_t i) {
    const EmissionsGrad grad = to.at(i);
    if (grad.is_unset) grad.clear(0, views_[i].frames);
    if (tangents[i] && scores_[i] != kNegInf)
      dispatch(views_[i].dtype, [&](auto kind) {
        jvps[i] = differentiate<decltype(kind)>(i, deltas[i], tangents[i].to_vector(), grad);
      });
  });
  to.join();
}

/// The Jacobian of the softmax p of a frame, applied to the tangent v: p (v - <p, v>).
template <class T>
double Frames::differentiate(size_t i, double delta, const std::vector<double>& tangent,
                             const EmissionsGrad& grad) const {
  const Emissions& view = views_[i];
  std::vector<T> scratch;
  std::vector<double> posterior(static_cast<size_t>(view.labels));
  double jvp = 0.0;
  for (int32_t t = 0; t < view.frames; ++t) {
    if (t % kFramesPerPoll == 0) poll_interrupt();
    const T* const frame = frame_of(view, t, scratch);
    const double* const v = tangent.data() + int64_t{t} * view.labels;
    double total = 0.0, mean = 0.0;
    for (int32_t c = 0; c < view.labels; ++c)
      total += posterior[c] = std::exp(static_cast<double>(frame[c]) - sums_[i][t].scale);
    for (int32_t c = 0; c < view.labels; ++c) mean += (posterior[c] /= total) * v[c];
    jvp += mean;
    if (!grad.data) continue;
    T* const to = grad.row<T>(t);
    for (int32_t c = 0; c < view.labels; ++c)
      to[c] += static_cast<T>(delta * posterior[c] * (v[c] - mean));
  }
  return jvp;
}

namespace {

/// Differentiates the gradients of scores: its inputs are the emissions and one delta per example.
class FramesGradientRule final : public Rule {
 public:
  FramesGradientRule(std::shared_ptr<const Frames> frames, std::vector<double> deltas,
                     std::vector<size_t> outputs)
      : frames_(std::move(frames)), deltas_(std::move(deltas)), outputs_(std::move(outputs)) {}

  bool is_parallel() const override { return true; }
  bool takes_strided() const override { return true; }

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    const size_t count = deltas_.size();
    std::vector<Weights> tangents(count);
    for (size_t k = 0; k < outputs_.size(); ++k) tangents[outputs_[k]] = deltas[k];
    std::vector<double> jvps(count);
    frames_->add_hvps(deltas_, tangents, grads.first(count), jvps);
    for (size_t i = 0; i < count; ++i)
      if (Gradient* grad = grads[count + i]) grad->sum().add(Weights::scalar(jvps[i]));
  }

 private:
  std::shared_ptr<const Frames> frames_;
  std::vector<double> deltas_;
  std::vector<size_t> outputs_;  // the example each output belongs to
};

}  // namespace

std::vector<Graph> record_gradients(const char* op, const std::shared_ptr<const Frames>& frames,
                                    std::span<const Graph> deltas,
                                    const std::vector<bool>& wanted) {
  std::vector<Graph> inputs(frames->emissions());
  std::vector<double> scale;
  std::vector<bool> is_nonzero(wanted);
  for (size_t i = 0; i < wanted.size(); ++i) {
    scale.push_back(deltas[i] ? deltas[i].item() : 0.0);
    inputs.push_back(deltas[i] ? deltas[i] : scalar_graph(0.0, false));
    if (!deltas[i]) is_nonzero[i] = false;
  }
  RecordedGradients grads(frames->emissions(), is_nonzero);
  frames->add_gradients(scale, grads.destinations());
  return grads.record(op, inputs, [&](std::vector<size_t> outputs) {
    return std::make_unique<FramesGradientRule>(frames, std::move(scale), std::move(outputs));
  });
}

namespace {

/// Differentiates the scores; its inputs are the emissions.
class FramesRule final : public Rule {
 public:
  explicit FramesRule(std::shared_ptr<const Frames> frames) : frames_(std::move(frames)) {}

  bool is_parallel() const override { return true; }
  int32_t least_level() const override { return kFillsRows; }
  bool takes_strided() const override { return true; }

  void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const override {
    std::vector<double> scale;
    for (const Weights& delta : deltas) scale.push_back(delta ? delta[0] : 0.0);
    frames_->add_gradients(scale, grads);
  }

  std::vector<Graph> record(std::span<const Graph> deltas,
                            const std::vector<bool>& wanted) const override {
    return record_gradients(op, frames_, deltas, wanted);
  }

 private:
  std::shared_ptr<const Frames> frames_;
};

}  // namespace

void score_frames(const char* op, const std::vector<Graph>& graphs,
                  std::span<const size_t> positions, std::vector<Graph>& out) {
  std::vector<Graph> emissions, outputs;
  for (size_t i : positions) emissions.push_back(graphs[i].snapshot());
  const bool keep = tracks(emissions);
  auto frames = std::make_shared<Frames>(op, emissions);
  frames->for_each([&](size_t i) {
    try {
      frames->sum(i);
    } catch (...) {
      if (graphs.size() == 1) throw;
      rethrow_for_element(op, positions[i], graphs.size());
    }
  });
  for (size_t k = 0; k < positions.size(); ++k) {
    outputs.emplace_back(scalar_topology(), Weights::scalar(frames->score(k)));
    out[positions[k]] = outputs.back();
  }
  if (keep)
    record_entry(op, outputs, emissions, 0, std::make_unique<FramesRule>(std::move(frames)));
}

}  // namespace arcgrad::trellis
