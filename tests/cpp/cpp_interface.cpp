// The C++ interface: random matrices between random grids, conversions, requests, errors. Prints "0 failures" on rank
// 0.
#include <array>
#include <dace_redist.hpp>
#include <iostream>
#include <random>

namespace {

int failures = 0, rank = 0, size = 0;

void expect(bool right, const std::string& what) {
  if (right) return;
  ++failures;
  std::cerr << "rank " << rank << ": " << what << '\n';
}

/// Expects an error whose text has a part, and returns its status.
template <class Call>
int status_of(const char* part, Call call) {
  try {
    call();
  } catch (const dr::Error& error) {
    expect(std::string(error.what()).find(part) != std::string::npos, error.what());
    return error.status;
  }
  expect(false, std::string("no error with ") + part);
  return DR_SUCCESS;
}

struct Particle {
  char name[3];
};

using Matrix = std::array<std::int64_t, 2>;

/// First index of a rank's part, and its extents, of balanced blocks: the oracle.
void part_of(const Matrix& shape, const Matrix& grid, Matrix& first, Matrix& extents) {
  const Matrix at = {rank / grid[1], rank % grid[1]};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t least = shape[i] / grid[i], more = shape[i] % grid[i];
    extents[i] = at[i] >= grid[i] ? 0 : least + (at[i] < more);
    first[i] = at[i] * least + std::min(at[i], more);
  }
  if (extents[0] * extents[1] == 0) extents = {0, 0};
}

template <class Source, class Target>
void move(std::mt19937& random, bool transposed, bool starts) {
  const auto draw = [&random](int from, int to) { return from + static_cast<int>(random() % (to - from + 1)); };
  const Matrix shape = {draw(1, 40), draw(1, 40)}, grid = {draw(1, size), 1}, other = {1, draw(1, size)};
  const Matrix wanted = transposed ? Matrix{shape[1], shape[0]} : shape;
  const dr::Distribution from({shape[0], shape[1]}, {grid[0], grid[1]}),
      to({wanted[0], wanted[1]}, {other[0], other[1]});
  Matrix first, extents;
  part_of(shape, grid, first, extents);
  std::vector<Source> a(static_cast<std::size_t>(from.local_count(rank)));
  dr::Memory<Target> b(static_cast<std::size_t>(to.local_count(rank)));
  expect(a.size() == static_cast<std::size_t>(extents[0] * extents[1]), "count of the source");
  expect(a.empty() || from.local_shape(rank) == dr::Extents(extents.begin(), extents.end()), "shape of the source");
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    a[i] = static_cast<Source>((first[0] + at / extents[1]) * shape[1] + first[1] + at % extents[1]);
  }
  dr_problem problem = dr::Plan<Source, Target>::problem(from, to);
  const int axes[] = {1, 0};
  if (transposed) problem.axes = axes;
  problem.operation.alpha[0] = 2;
  problem.strategy = random() % 2 ? "Pack" : "Hierarchical";
  dr::Plan<Source, Target> made(problem, MPI_COMM_WORLD), plan = std::move(made);
  if (starts) {
    dr::Request request = plan.start(a, b);
    while (!request.test()) continue;
    request.wait();
  } else {
    plan.execute(a, b);
  }
  part_of(wanted, other, first, extents);
  bool right = b.size() == static_cast<std::size_t>(extents[0] * extents[1]);
  for (std::size_t i = 0; right && i < b.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t row = first[0] + at / extents[1], column = first[1] + at % extents[1];
    right = b[i] == static_cast<Target>(2 * (transposed ? column * shape[1] + row : row * shape[1] + column));
  }
  expect(right, "result");
}

void misuse() {
  const dr::Distribution rows({8, 6}, {size, 1}), columns({8, 6}, {1, size}), other({9, 6}, {1, size});
  dr::Plan<double> plan(rows, columns, MPI_COMM_WORLD);
  std::vector<double> a(static_cast<std::size_t>(rows.local_count(rank))), b(a.size() + 100);
  expect(status_of("target must have", [&] { plan.execute(a, b); }) == DR_ERROR_ARGUMENT, "size of the target");
  expect(status_of("axes must have 2", [] { dr::Distribution({4, 4}, {2}, {0}); }) == DR_ERROR_ARGUMENT, "axes");
  expect(status_of("grid[0]", [] { dr::Distribution({4, 4}, {-2, 2}); }) == DR_ERROR_ARGUMENT, "grid");
  expect(status_of("shape", [&] { dr::Plan<double>(rows, other, MPI_COMM_WORLD); }) == DR_ERROR_PLAN, "shapes");
  dr_problem problem = dr::Plan<double>::problem(rows, columns);
  if (rank == size - 1) problem.strategy = "Fastest";  // an error on every rank
  expect(status_of("", [&] { dr::Plan<double>(problem, MPI_COMM_WORLD); }) == DR_ERROR_PLAN, "strategy");
}

/// A size or type that is wrong on one rank only is an error on all.
void sizes_and_types() {
  const auto memory = [](auto zero, int shift) {
    const auto make = [&] { dr::Memory<decltype(zero)> made(std::size_t(1) << shift); };
    expect(status_of("node-shared memory", make) == DR_ERROR_MEMORY, "size of memory");
  };
  memory(0.0, 61), memory(std::complex<double>(), 60), memory(0, 63), memory('c', 63);
  const dr::Distribution rows({8, 6}, {size, 1}), columns({8, 6}, {1, size});
  const auto plan = [&](auto source, auto target, dr_problem problem) {
    using Source = decltype(source);
    using Target = decltype(target);
    const bool wrong = rank == size - 1;
    const auto make = [&] {
      dr::Plan<Source, Target>(wrong ? problem : dr::Plan<Source, Target>::problem(rows, columns), MPI_COMM_WORLD);
    };
    const int status = status_of(wrong ? "problem must have the arrays' types and elements of" : "on rank", make);
    expect(status == (wrong ? DR_ERROR_ARGUMENT : DR_ERROR_PLAN), "types of a problem");
  };
  plan(0.f, 0.f, dr::Plan<double>::problem(rows, columns));
  plan(0.0, 0.0, dr::Plan<float>::problem(rows, columns));
  plan(0.f, 0.f, dr::Plan<float, double>::problem(rows, columns));
  plan(0.f, 0.0, dr::Plan<float>::problem(rows, columns));
  plan(0, 0, dr::Plan<float>::problem(rows, columns));
  plan(Particle(), Particle(), dr::Plan<double>::problem(rows, columns));
  plan(0.0, 0.0, dr::Plan<Particle>::problem(rows, columns));
  dr_problem bytes = dr::Plan<double>::problem(rows, columns);
  bytes.operation.source_type = bytes.operation.target_type = DR_OPAQUE;
  dr::Plan<double>(bytes, MPI_COMM_WORLD);  // whatever they are, they have 8 bytes
  bytes.element_bytes = 16;
  plan(0.0, 0.0, bytes);
  expect(status_of("rank must be at least 0, got -1", [&] { rows.local_count(-1); }) == DR_ERROR_ARGUMENT, "rank");
  expect(status_of("rank must be at least 0, got -1", [&] { rows.local_shape(-1); }) == DR_ERROR_ARGUMENT, "rank");
  const std::int64_t vast = std::int64_t(1) << 40;
  expect(status_of("", [&] { dr::Distribution({8, 6}, {vast, vast}, {}, {}, {0}); }) == DR_ERROR_ARGUMENT, "grid");
}

/// Rank r holds r + 1 rows.
void lengths() {
  dr::Extents block = {DR_BLOCK_LENGTHS, DR_BLOCK_CEIL};
  for (int other = 0; other < size; ++other) block.push_back(other + 1);
  const std::int64_t rows = size * (size + 1) / 2;
  const auto make = [&] { return dr::Distribution({rows, 3}, {size, 1}, {}, block).local_count(rank); };
  expect(make() == 3 * (rank + 1), "length of a part");
  block.pop_back();
  expect(status_of("block must have", make) == DR_ERROR_ARGUMENT, "too few lengths");
  const dr::Distribution whole({6, 4}, {size}, {DR_NOT_SPLIT, 0}, {DR_BLOCK_LENGTHS, DR_BLOCK_CEIL, 6});
  expect(whole.local_shape(rank)[0] == 6, "length of an axis that is not split");
}

/// From rank 0 to the others: each group has an array for one side.
void between_groups() {
  MPI_Comm group, both;
  MPI_Comm_split(MPI_COMM_WORLD, rank > 0, 0, &group);
  MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, rank > 0 ? 0 : 1, 0, &both);
  {
    const dr::Distribution one({6, 2}, {1, 1}), others({6, 2}, {size - 1, 1});
    dr_problem problem = dr::Plan<int>::problem(one, others);
    problem.sends = rank == 0;
    const std::vector<int> a(rank == 0 ? 12 : 0, 7);
    std::vector<int> b(rank == 0 ? 0 : static_cast<std::size_t>(others.local_count(rank - 1)));
    dr::Plan<int>(problem, both).execute(a, b);
    expect(b == std::vector<int>(b.size(), 7), "between groups");
  }
  MPI_Comm_free(&both);
  MPI_Comm_free(&group);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  static_assert(dr::type_of<long long>() == DR_INT64 && dr::type_of<unsigned char>() == DR_UINT8);
  __extension__ using Longest = __int128;
  static_assert(dr::type_of<Longest>() == DR_OPAQUE, "an integer of 16 bytes is only moved");
  static_assert(dr::type_of<Particle>() == DR_OPAQUE && dr::type_of<std::complex<float>>() == DR_COMPLEX64);
  std::mt19937 random(7);
  for (int i = 0; i < 40; ++i) {
    move<double, double>(random, i % 2, i % 3 == 0);
    move<float, double>(random, i % 2, i % 3 == 1);
    move<int, std::int64_t>(random, i % 2, i % 3 == 2);
  }
  misuse();
  sizes_and_types();
  lengths();
  if (size > 1) between_groups();
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) std::cout << failures << " failures\n";
  return MPI_Finalize();
}
