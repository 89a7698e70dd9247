// H = O Z^-1 I^T at many lines of many machines, Z = K + j D + p E + j w C - w^2 M: the small solve on a CPU.
//
// [[Z, I^T], [O, 0]] is eliminated symmetrically and without pivoting, for as many lines at once as a vector holds, real
// and imaginary parts apart, in tiles of 2 rows that stay in registers. What an elimination without pivoting cannot do
// exactly is told by the growth of its diagonal, line by line; such a line, and a machine whose matrices are not
// symmetric, is solved with pivoting instead. Everything behaves as IEEE 754 has it: no flag of the compiler may change
// that, and none flushes small numbers to zero.
//
// Lines are shared out by a counter. The thread that calls works on its own lines until none is left, then waits for
// those that others have begun; nobody who has begun a line waits for anything, so calls cannot wait for each other.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

#include "xla/ffi/api/c_api.h"

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 8, TILE = 4;  // of 32 registers 16 hold a tile of 2 rows
#elif defined(__AVX__)
constexpr int LANES = 4, TILE = 3;  // 16 registers, of which a tile takes 12
#elif defined(__aarch64__)
constexpr int LANES = 2, TILE = 4;  // 32 registers
#else
constexpr int LANES = 2, TILE = 2;
#endif

typedef double Vector __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t Mask __attribute__((vector_size(LANES * sizeof(double))));
typedef double Unaligned __attribute__((vector_size(LANES * sizeof(double)), aligned(sizeof(double))));

struct Complex {
  Vector re, im;
};

constexpr double GROWTH = 1e3;
// Sum of what is taken off and put on an entry of the diagonal, over what it is made of, up to which no digits are
// missed: it costs three of sixteen.
constexpr double ASYMMETRY = 1e-12;
// Difference of two entries that should be one, over the diagonal, that is rounding.
constexpr double PIECE = 1e5;
// Multiplications, of vectors, that are worth giving away: some 20 us.
constexpr double WAKING = 3e5;
// The same, that a caller is done with before a thread that sleeps has woken up.

struct Sizes {
  int64_t machines, lines, n, outputs, inputs;
};

// One machine: pointers into the arguments. Those that it does not have are null.
struct Machine {
  const double *mass, *damping, *stiffness, *structural, *fractional, *power_re, *power_im, *omega, *output_rows,
      *input_rows;
  bool symmetric;
  double* h;                  // [lines, outputs, inputs], complex
  double *xi[2], *xo[2];      // [n, inputs, lines] and [n, outputs, lines], real and imaginary parts; or null
};

inline Vector all(double x) { return x - Vector{}; }
inline Vector size(Vector x) { return x < 0.0 ? -x : x; }

inline Complex times(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

inline Complex inverse(Complex a) {
  Vector scale = 1.0 / (a.re * a.re + a.im * a.im);
  return {a.re * scale, -a.im * scale};
}

// Memory that a thread keeps from call to call.
template <class T>
struct Scratch {
  T* data = nullptr;
  size_t held = 0;
  ~Scratch() { std::free(data); }
  T* atLeast(size_t count) {
    if (count > held) {
      std::free(data);
      size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
      data = static_cast<T*>(std::aligned_alloc(64, bytes));
      held = data ? count : 0;
      if (!data) throw std::bad_alloc();
    }
    return data;
  }
};

// A tile less the product of scaled rows above it, packed by twos or ones, with the rows above it.
template <int R, int C>
inline void reduce(const Complex* packed, const Complex* above, int64_t stride, int64_t count, Vector (&re)[R][C],
                   Vector (&im)[R][C]) {
  for (int64_t p = 0; p < count; p++) {
    for (int c = 0; c < C; c++) {
      Complex u = above[p * stride + c];
      for (int r = 0; r < R; r++) {
        Complex s = packed[p * R + r];
        re[r][c] -= s.re * u.re;
        im[r][c] -= s.re * u.im;
        re[r][c] += s.im * u.im;
        im[r][c] -= s.im * u.re;
      }
    }
  }
}

// A tile of the upper triangle: reduced, and where it has two rows the second by the first. The first tile of a row
// begins on the diagonal, whose inverses it tells.
template <int R, int C, bool FIRST>
inline void eliminate(const Complex* packed, Complex* matrix, int64_t stride, int64_t row, int64_t column,
                      Complex* inverses, Complex& factor) {
  Vector re[R][C], im[R][C];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) {
      re[r][c] = matrix[(row + r) * stride + column + c].re;
      im[r][c] = matrix[(row + r) * stride + column + c].im;
    }
  reduce<R, C>(packed, matrix + column, stride, row, re, im);
  if constexpr (FIRST) inverses[row] = inverse({re[0][0], im[0][0]});
  if constexpr (R == 2) {
    if constexpr (FIRST && C > 1) factor = times({re[0][1], im[0][1]}, inverses[row]);
    for (int c = 0; c < C; c++) {
      re[1][c] = re[1][c] - factor.re * re[0][c] + factor.im * im[0][c];
      im[1][c] = im[1][c] - factor.re * im[0][c] - factor.im * re[0][c];
    }
    if constexpr (FIRST && C > 1) inverses[row + 1] = inverse({re[1][1], im[1][1]});
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++) matrix[(row + r) * stride + column + c] = {re[r][c], im[r][c]};
}

template <int R, bool FIRST>
inline void eliminateSome(int64_t columns, const Complex* packed, Complex* matrix, int64_t stride, int64_t row,
                          int64_t column, Complex* inverses, Complex& factor) {
  if (columns >= TILE) return eliminate<R, TILE, FIRST>(packed, matrix, stride, row, column, inverses, factor);
  if (columns == 3) return eliminate<R, 3, FIRST>(packed, matrix, stride, row, column, inverses, factor);
  if (columns == 2) return eliminate<R, 2, FIRST>(packed, matrix, stride, row, column, inverses, factor);
  if constexpr (!(FIRST && R == 2))
    eliminate<R, 1, FIRST>(packed, matrix, stride, row, column, inverses, factor);
}

// Lines of a machine, as many as a vector holds; beyond the last one it is repeated.
struct Lines {
  const Machine& machine;
  const Sizes& sizes;
  int64_t first, count;
  Vector w, w2, p_re, p_im;

  Lines(const Machine& m, const Sizes& s, int64_t group) : machine(m), sizes(s), first(group * LANES) {
    count = std::min<int64_t>(LANES, s.lines - first);
    w = spread(m.omega);
    w2 = w * w;
    p_re = m.fractional ? spread(m.power_re) : Vector{};
    p_im = m.fractional ? spread(m.power_im) : Vector{};
  }

  Vector spread(const double* values) const {
    Vector found;
    for (int k = 0; k < LANES; k++) found[k] = values[first + std::min<int64_t>(k, count - 1)];
    return found;
  }

  // Entry (i, j) of Z.
  Complex entry(int64_t at) const {
    Complex z{machine.stiffness[at] - w2 * machine.mass[at], w * machine.damping[at]};
    if (machine.structural) z.im += machine.structural[at];
    if (machine.fractional) {
      z.re += p_re * machine.fractional[at];
      z.im += p_im * machine.fractional[at];
    }
    return z;
  }

  // What entry (i, i) of Z is made of, without the signs.
  Vector weight(int64_t at) const {
    Vector sum = std::fabs(machine.stiffness[at]) + w2 * std::fabs(machine.mass[at]) +
                 size(w * std::fabs(machine.damping[at]));
    if (machine.structural) sum += std::fabs(machine.structural[at]);
    if (machine.fractional) sum += (size(p_re) + size(p_im)) * std::fabs(machine.fractional[at]);
    return sum;
  }

  void keep(double* const (&parts)[2], int64_t row, Complex value) const {
    double *re = parts[0] + row * sizes.lines + first, *im = parts[1] + row * sizes.lines + first;
    if (count == LANES) {
      *reinterpret_cast<Unaligned*>(re) = value.re;
      *reinterpret_cast<Unaligned*>(im) = value.im;
    } else {
      for (int k = 0; k < count; k++) re[k] = value.re[k], im[k] = value.im[k];
    }
  }

  void keepResponse(int64_t output, int64_t input, Complex value) const {
    for (int k = 0; k < count; k++) {
      double* at = machine.h + 2 * (((first + k) * sizes.outputs + output) * sizes.inputs + input);
      at[0] = value.re[k];
      at[1] = value.im[k];
    }
  }
};

// Columns behind Z: those of the inputs, then those of the outputs, which are the same where they are the same points.
struct Columns {
  int64_t inputs, outputs, width;
  explicit Columns(const Machine& m, const Sizes& s)
      : inputs(s.n), outputs(m.output_rows ? s.n + s.inputs : s.n),
        width(s.n + s.inputs + (m.output_rows ? s.outputs : 0)) {}
};

template <int R>
void pack(const Complex* matrix, int64_t stride, const Complex* inverses, int64_t count, int64_t column,
          Complex* packed) {
  for (int64_t p = 0; p < count; p++)
    for (int r = 0; r < R; r++) packed[p * R + r] = times(matrix[p * stride + column + r], inverses[p]);
}

template <int R>
void rowsOfResponses(const Lines& lines, const Columns& at, const Complex* matrix, const Complex* inverses, int64_t output,
                     Complex* packed) {
  const Sizes& s = lines.sizes;
  pack<R>(matrix, at.width, inverses, s.n, at.outputs + output, packed);
  for (int64_t input = 0; input < s.inputs; input += TILE) {
    auto tile = [&](auto columns) {
      constexpr int C = decltype(columns)::value;
      Vector re[R][C] = {}, im[R][C] = {};
      reduce<R, C>(packed, matrix + at.inputs + input, at.width, s.n, re, im);
      for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) lines.keepResponse(output + r, input + c, {-re[r][c], -im[r][c]});
    };
    int64_t left = s.inputs - input;
    if (left >= TILE) tile(std::integral_constant<int, TILE>{});
    else if (left == 3) tile(std::integral_constant<int, 3>{});
    else if (left == 2) tile(std::integral_constant<int, 2>{});
    else tile(std::integral_constant<int, 1>{});
  }
}

// x = U^-1 w in place of w, for some columns of it.
template <int C>
void substituteBack(Complex* matrix, int64_t stride, const Complex* inverses, int64_t n, int64_t column) {
  for (int64_t p = n - 1; p >= 0; p--) {
    Vector re[C], im[C];
    for (int c = 0; c < C; c++) re[c] = matrix[p * stride + column + c].re, im[c] = matrix[p * stride + column + c].im;
    for (int64_t j = p + 1; j < n; j++) {
      Complex u = matrix[p * stride + j];
      for (int c = 0; c < C; c++) {
        Complex x = matrix[j * stride + column + c];
        re[c] -= u.re * x.re;
        im[c] -= u.re * x.im;
        re[c] += u.im * x.im;
        im[c] -= u.im * x.re;
      }
    }
    for (int c = 0; c < C; c++) matrix[p * stride + column + c] = times({re[c], im[c]}, inverses[p]);
  }
}

template <int R>
void eliminateRows(const Lines& lines, int64_t width, Complex* matrix, Complex* inverses, int64_t row, Complex* packed,
                   Mask& grows) {
  const Sizes& s = lines.sizes;
  const Machine& m = lines.machine;
  for (int r = 0; r < R; r++) {
    Complex* to = matrix + (row + r) * width;
    if (r == 1) to[row] = Complex{};  // below the diagonal: not used
    for (int64_t j = row + r; j < s.n; j++) to[j] = lines.entry((row + r) * s.n + j);
    for (int64_t k = 0; k < s.inputs; k++) to[s.n + k] = Complex{all(m.input_rows[k * s.n + row + r]), Vector{}};
    if (m.output_rows)
      for (int64_t k = 0; k < s.outputs; k++)
        to[s.n + s.inputs + k] = Complex{all(m.output_rows[k * s.n + row + r]), Vector{}};
  }
  pack<R>(matrix, width, inverses, row, row, packed);
  Complex factor{};
  for (int64_t column = row; column < width; column += TILE) {
    if (column == row) eliminateSome<R, true>(width - column, packed, matrix, width, row, column, inverses, factor);
    else eliminateSome<R, false>(width - column, packed, matrix, width, row, column, inverses, factor);
  }
  for (int r = 0; r < R; r++) {
    Complex d = matrix[(row + r) * width + row + r];
    Vector moved = size(d.re) + size(d.im);
    for (int64_t p = 0; p < row; p++) {
      Complex s = packed[p * R + r], u = matrix[p * width + row + r];
      moved += (size(s.re) + size(s.im)) * (size(u.re) + size(u.im));
    }
    if (r == 1) {
      Complex u = matrix[row * width + row + 1];
      moved += (size(factor.re) + size(factor.im)) * (size(u.re) + size(u.im));
    }
    grows |= ~(moved <= GROWTH * lines.weight((row + r) * (s.n + 1)));  // NaN grows
  }
}

// One line of any machine, by Gaussian elimination with partial pivoting; the transposed one for what the outputs see.
void solvePivoted(const Lines& lines, int64_t lane, double* scratch) {
  const Sizes& s = lines.sizes;
  const Machine& m = lines.machine;
  const int64_t n = s.n, line = lines.first + lane;
  const double* output_rows = m.output_rows ? m.output_rows : m.input_rows;
  for (int side = 0; side < (m.xo[0] ? 2 : 1); side++) {
    const int64_t count = side ? s.outputs : s.inputs, width = n + count;
    const double* rows = side ? output_rows : m.input_rows;
    double *re = scratch, *im = scratch + n * width;
    for (int64_t i = 0; i < n; i++) {
      for (int64_t j = 0; j < n; j++) {
        const int64_t at = side ? j * n + i : i * n + j;
        const double w = lines.w[lane];
        double z_re = m.stiffness[at] - w * w * m.mass[at], z_im = w * m.damping[at];
        if (m.structural) z_im += m.structural[at];
        if (m.fractional) z_re += lines.p_re[lane] * m.fractional[at], z_im += lines.p_im[lane] * m.fractional[at];
        re[i * width + j] = z_re, im[i * width + j] = z_im;
      }
      for (int64_t k = 0; k < count; k++) re[i * width + n + k] = rows[k * n + i], im[i * width + n + k] = 0.0;
    }
    for (int64_t p = 0; p < n; p++) {
      int64_t pivot = p;
      double largest = -1.0;
      for (int64_t i = p; i < n; i++) {
        double there = std::fabs(re[i * width + p]) + std::fabs(im[i * width + p]);
        if (there > largest) largest = there, pivot = i;
      }
      if (pivot != p) {
        std::swap_ranges(re + p * width + p, re + (p + 1) * width, re + pivot * width + p);
        std::swap_ranges(im + p * width + p, im + (p + 1) * width, im + pivot * width + p);
      }
      const double *u_re = re + p * width, *u_im = im + p * width;
      const double d_re = u_re[p], d_im = u_im[p], over = 1.0 / (d_re * d_re + d_im * d_im);
      for (int64_t i = p + 1; i < n; i++) {
        double *to_re = re + i * width, *to_im = im + i * width;
        const double f_re = (to_re[p] * d_re + to_im[p] * d_im) * over, f_im = (to_im[p] * d_re - to_re[p] * d_im) * over;
        for (int64_t j = p + 1; j < width; j++) {
          to_re[j] += f_im * u_im[j] - f_re * u_re[j];
          to_im[j] -= f_re * u_im[j] + f_im * u_re[j];
        }
      }
    }
    for (int64_t p = n - 1; p >= 0; p--) {
      const double d_re = re[p * width + p], d_im = im[p * width + p], over = 1.0 / (d_re * d_re + d_im * d_im);
      for (int64_t k = n; k < width; k++) {
        double x_re = re[p * width + k], x_im = im[p * width + k];
        for (int64_t j = p + 1; j < n; j++) {
          const double u_re = re[p * width + j], u_im = im[p * width + j];
          x_re += u_im * im[j * width + k] - u_re * re[j * width + k];
          x_im -= u_re * im[j * width + k] + u_im * re[j * width + k];
        }
        re[p * width + k] = (x_re * d_re + x_im * d_im) * over;
        im[p * width + k] = (x_im * d_re - x_re * d_im) * over;
      }
    }
    if (!side)
      for (int64_t o = 0; o < s.outputs; o++)
        for (int64_t k = 0; k < count; k++) {
          double h_re = 0.0, h_im = 0.0;
          for (int64_t i = 0; i < n; i++) {
            h_re += output_rows[o * n + i] * re[i * width + n + k];
            h_im += output_rows[o * n + i] * im[i * width + n + k];
          }
          double* at = m.h + 2 * ((line * s.outputs + o) * s.inputs + k);
          at[0] = h_re, at[1] = h_im;
        }
    double* const(&to)[2] = side ? m.xo : m.xi;
    if (to[0])
      for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < count; k++) {
          to[0][(i * count + k) * s.lines + line] = re[i * width + n + k];
          to[1][(i * count + k) * s.lines + line] = im[i * width + n + k];
        }
  }
}

void solve(const Lines& lines, Complex* matrix, double* pivoted) {
  const Sizes& s = lines.sizes;
  const Machine& m = lines.machine;
  const Columns at(m, s);
  Complex *inverses = matrix + s.n * at.width, *packed = inverses + s.n;
  Mask grows = {};
  if (m.symmetric) {
    int64_t row = 0;
    for (; row + 1 < s.n; row += 2) eliminateRows<2>(lines, at.width, matrix, inverses, row, packed, grows);
    if (row < s.n) eliminateRows<1>(lines, at.width, matrix, inverses, row, packed, grows);
    int64_t output = 0;
    for (; output + 1 < s.outputs; output += 2) rowsOfResponses<2>(lines, at, matrix, inverses, output, packed);
    if (output < s.outputs) rowsOfResponses<1>(lines, at, matrix, inverses, output, packed);
    if (m.xi[0]) {
      for (int64_t column = s.n; column < at.width; column += 4) {
        int64_t left = at.width - column;
        if (left >= 4) substituteBack<4>(matrix, at.width, inverses, s.n, column);
        else if (left == 3) substituteBack<3>(matrix, at.width, inverses, s.n, column);
        else if (left == 2) substituteBack<2>(matrix, at.width, inverses, s.n, column);
        else substituteBack<1>(matrix, at.width, inverses, s.n, column);
      }
      for (int64_t i = 0; i < s.n; i++) {
        for (int64_t k = 0; k < s.inputs; k++)
          lines.keep(m.xi, i * s.inputs + k, matrix[i * at.width + at.inputs + k]);
        for (int64_t k = 0; m.xo[0] && k < s.outputs; k++)
          lines.keep(m.xo, i * s.outputs + k, matrix[i * at.width + at.outputs + k]);
      }
    }
  }
  for (int k = 0; k < lines.count; k++)
    if (!m.symmetric || grows[k]) solvePivoted(lines, k, pivoted);
}

bool isSymmetric(const double* a, int64_t n) {
  if (!a) return true;
  double largest = 0.0;
  for (int64_t i = 0; i < n * n; i++) largest = std::max(largest, std::fabs(a[i]));
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++) {
      const double apart = std::fabs(a[i * n + j] - a[j * n + i]);
      if (apart == 0.0) continue;
      const double diagonal = std::sqrt(std::fabs(a[i * n + i] * a[j * n + j]));
      if (!(apart <= ASYMMETRY * diagonal + 1e-3 * ASYMMETRY * largest)) return false;
    }
  return true;
}

// Threads that help those that call.
class Helpers {
  struct Job {
    const std::function<void(int64_t)>* work;
    int64_t count;
    std::atomic<int64_t> next{0}, done{0};
    std::atomic<bool> failed{false};
    void some() {
      for (int64_t k; (k = next.fetch_add(1)) < count; done.fetch_add(1, std::memory_order_release)) {
        try {
          (*work)(k);
        } catch (...) {  // the caller throws it, when nobody works for it any more
          failed.store(true, std::memory_order_relaxed);
        }
      }
    }
  };
  std::mutex mutex_;
  std::condition_variable wanted_;
  std::deque<std::shared_ptr<Job>> jobs_;
  std::vector<std::thread> threads_;
#if defined(__linux__)
  cpu_set_t allowed_{};  // cores that the last caller may use
#endif

  void help() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      while (jobs_.empty()) {
        wanted_.wait(lock);
        goAnywhere();
      }
      std::shared_ptr<Job> job = jobs_.front();
      lock.unlock();
      job->some();
      lock.lock();
      goAnywhere();
      auto found = std::find(jobs_.begin(), jobs_.end(), job);
      if (found != jobs_.end()) jobs_.erase(found);
    }
  }

  // Some schedulers wake a thread on the core of the one that wakes it, where it waits for milliseconds although others
  // have nothing to do. So helpers are woken elsewhere, and may then go wherever the caller may.
  void keepOffThisCore(int64_t count) {
#if defined(__linux__)
    const int core = sched_getcpu();
    if (core < 0 || core >= CPU_SETSIZE || sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) return;
    cpu_set_t others = allowed_;
    CPU_CLR(core, &others);
    if (CPU_COUNT(&others) == 0) return;
    for (int64_t k = 0; k < count; k++) pthread_setaffinity_np(threads_[k].native_handle(), sizeof others, &others);
#endif
  }

  void goAnywhere() {
#if defined(__linux__)
    if (CPU_COUNT(&allowed_) > 0) sched_setaffinity(0, sizeof allowed_, &allowed_);
#endif
  }

 public:
  Helpers() {
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    try {
      for (unsigned k = 1; k < cores; k++) threads_.emplace_back([this] { help(); });
    } catch (...) {  // no more threads: those that there are
    }
  }

  void run(int64_t count, const std::function<void(int64_t)>& work) {
    if (count <= 1 || threads_.empty()) {
      for (int64_t k = 0; k < count; k++) work(k);
      return;
    }
    const int64_t wanted = std::min<int64_t>(count - 1, threads_.size());
    auto job = std::make_shared<Job>();
    job->work = &work;
    job->count = count;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      keepOffThisCore(wanted);
      jobs_.push_back(job);
    }
    for (int64_t k = 0; k < wanted; k++) wanted_.notify_one();
    job->some();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto found = std::find(jobs_.begin(), jobs_.end(), job);
      if (found != jobs_.end()) jobs_.erase(found);
    }
    while (job->done.load(std::memory_order_acquire) < count) std::this_thread::yield();
    if (job->failed.load(std::memory_order_relaxed)) throw std::bad_alloc();
  }
};

Helpers& helpers() {
  static Helpers* const found = new Helpers;  // for as long as the process lives: its threads may be waiting at the end
  return *found;
}

void solveAll(const Sizes& s, const std::function<Machine(int64_t)>& machine) {
  const int64_t groups = (s.lines + LANES - 1) / LANES, all_groups = groups * s.machines;
  if (all_groups == 0) return;
  const Machine first = machine(0);
  const int64_t width = Columns(first, s).width, right = width - s.n;
  const double work = 4.0 * (s.n * s.n * (s.n + 6.0) / 6.0 + 0.5 * s.n * s.n * right * (first.xi[0] ? 2.0 : 1.0) +
                             1.0 * s.n * s.outputs * s.inputs);
  const int64_t piece =
      work * all_groups <= WAKING ? all_groups : std::max<int64_t>(1, static_cast<int64_t>(PIECE / work));
  const std::function<void(int64_t)> some = [&](int64_t number) {
    static thread_local Scratch<Complex> vectors;
    static thread_local Scratch<double> numbers;
    Complex* matrix = vectors.atLeast(s.n * width + s.n + 2 * s.n);
    double* pivoted = numbers.atLeast(2 * s.n * (s.n + std::max(s.inputs, s.outputs)));
    int64_t group = number * piece;
    const int64_t end = std::min(group + piece, all_groups);
    while (group < end) {
      const int64_t which = group / groups, last = std::min(end, (which + 1) * groups);
      Machine m = machine(which);
      m.symmetric = isSymmetric(m.mass, s.n) && isSymmetric(m.damping, s.n) && isSymmetric(m.stiffness, s.n) &&
                    isSymmetric(m.structural, s.n) && isSymmetric(m.fractional, s.n);
      for (; group < last; group++) solve(Lines(m, s, group - which * groups), matrix, pivoted);
    }
  };
  helpers().run((all_groups + piece - 1) / piece, some);
}

XLA_FFI_Error* failed(const XLA_FFI_Api* api, const char* message) {
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = message;
  args.errc = XLA_FFI_Error_Code_INTERNAL;
  return api->XLA_FFI_Error_Create(&args);
}

}  // namespace

// Arguments: M, C, K, D or nothing [b.., n, n]; E or nothing, Re p and Im p [b.., f]; omega [b.., f]; O or nothing where
// it is I [b.., o, n]; I [b.., i, n]. Nothing is an array without elements. Results: H [b.., f, o, i]; then, where they
// are asked for, X_i = Z^-1 I^T [b.., n, i, f], and also X_o = Z^-T O^T [b.., n, o, f], real and imaginary parts apart.
extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* jaxmb_receptance(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start && frame->extension_start->type == XLA_FFI_Extension_Metadata) {
    auto* found = reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start)->metadata;
    found->api_version.major_version = XLA_FFI_API_MAJOR;
    found->api_version.minor_version = XLA_FFI_API_MINOR;
    return nullptr;
  }
  if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return nullptr;
  if (frame->args.size != 10 || (frame->rets.size != 1 && frame->rets.size != 3 && frame->rets.size != 5))
    return failed(frame->api, "jaxmb_receptance: wrong number of arguments");
  const XLA_FFI_Buffer *in[10], *out[5];
  for (int k = 0; k < 10; k++) {
    in[k] = static_cast<const XLA_FFI_Buffer*>(frame->args.args[k]);
    if (in[k]->dtype != XLA_FFI_DataType_F64) return failed(frame->api, "jaxmb_receptance: expected 64-bit floats");
  }
  for (int64_t k = 0; k < frame->rets.size; k++) out[k] = static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[k]);
  Sizes s;
  const int64_t rank = in[0]->rank;
  s.n = in[0]->dims[rank - 1];
  s.lines = in[7]->dims[rank - 2];
  s.inputs = in[9]->dims[rank - 2];
  s.outputs = out[0]->dims[rank - 1];
  s.machines = 1;
  for (int64_t k = 0; k < rank - 2; k++) s.machines *= in[0]->dims[k];
  const auto numbers = [&](int k) -> const double* {
    for (int64_t j = 0; j < in[k]->rank; j++)
      if (in[k]->dims[j] == 0) return nullptr;
    return static_cast<const double*>(in[k]->data);
  };
  const double* from[10];
  for (int k = 0; k < 10; k++) from[k] = numbers(k);
  double* to[5] = {};
  for (int64_t k = 0; k < frame->rets.size; k++) to[k] = static_cast<double*>(out[k]->data);
  const int64_t square = s.n * s.n;
  const auto shifted = [](auto* at, int64_t by) { return at ? at + by : nullptr; };
  try {
    solveAll(s, [&](int64_t b) {
      Machine m{};
      m.mass = from[0] + b * square;
      m.damping = from[1] + b * square;
      m.stiffness = from[2] + b * square;
      m.structural = shifted(from[3], b * square);
      m.fractional = shifted(from[4], b * square);
      m.power_re = shifted(from[5], b * s.lines);
      m.power_im = shifted(from[6], b * s.lines);
      m.omega = from[7] + b * s.lines;
      m.output_rows = shifted(from[8], b * s.outputs * s.n);
      m.input_rows = from[9] + b * s.inputs * s.n;
      m.h = to[0] + 2 * b * s.lines * s.outputs * s.inputs;
      for (int part = 0; part < 2; part++) {
        m.xi[part] = shifted(to[1 + part], b * s.n * s.inputs * s.lines);
        m.xo[part] = shifted(to[3 + part], b * s.n * s.outputs * s.lines);
      }
      return m;
    });
  } catch (const std::bad_alloc&) {
    return failed(frame->api, "jaxmb_receptance: not enough memory");
  }
  return nullptr;
}
