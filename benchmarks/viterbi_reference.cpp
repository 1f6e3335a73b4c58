// Forced alignment as a plain Viterbi recursion, the yardstick of benchmarks/align.py: one row of
// float scores per frame, a back-pointer of one byte per state and frame, and the range of states
// that can be reached and can still reach the end.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

extern "C" int viterbi_reference(const float* log_probs, int64_t frames, int64_t labels,
                                 const int64_t* target, int64_t size, int64_t blank, int64_t* path,
                                 float* scores) {
  const float impossible = -std::numeric_limits<float>::infinity();
  const int64_t states = 2 * size + 1;
  int64_t repeats = 0;
  for (int64_t i = 1; i < size; ++i) repeats += target[i] == target[i - 1];
  if (frames < size + repeats) return 1;
  std::vector<float> rows(static_cast<std::size_t>(2 * states), impossible);
  std::vector<int8_t> back(static_cast<std::size_t>(frames * states), -1);
  float *now = rows.data(), *before = now + states;
  const auto label = [&](int64_t s) { return s % 2 == 0 ? blank : target[s / 2]; };
  int64_t begin = frames - (size + repeats) > 0 ? 0 : 1, end = states == 1 ? 1 : 2;
  for (int64_t s = begin; s < end; ++s) now[s] = log_probs[label(s)];
  for (int64_t t = 1; t < frames; ++t) {
    if (frames - t <= size + repeats) {
      if (begin % 2 == 1 && begin / 2 + 1 < size && target[begin / 2] != target[begin / 2 + 1])
        ++begin;
      ++begin;
    }
    if (t <= size + repeats) {
      if (end % 2 == 0 && end < 2 * size && target[end / 2 - 1] != target[end / 2]) ++end;
      ++end;
      if (end > states) end = states;
    }
    float* const swapped = before;
    before = now;
    now = swapped;
    for (int64_t s = 0; s < states; ++s) now[s] = impossible;
    const float* const row = log_probs + t * labels;
    int8_t* const pointers = back.data() + t * states;
    for (int64_t s = begin < 0 ? 0 : begin; s < end; ++s) {
      float best = before[s];
      int8_t step = 0;
      if (s > 0 && before[s - 1] > best) {
        best = before[s - 1];
        step = 1;
      }
      if (s % 2 == 1 && s > 1 && target[s / 2] != target[s / 2 - 1] && before[s - 2] > best) {
        best = before[s - 2];
        step = 2;
      }
      now[s] = best + row[label(s)];
      pointers[s] = step;
    }
  }
  int64_t state = states == 1 || now[states - 1] > now[states - 2] ? states - 1 : states - 2;
  if (now[state] == impossible) return 2;
  for (int64_t t = frames - 1; t >= 0; --t) {
    path[t] = label(state);
    scores[t] = log_probs[t * labels + path[t]];
    if (t > 0) state -= back[static_cast<std::size_t>(t * states + state)];
  }
  return 0;
}
