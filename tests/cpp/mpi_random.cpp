// Random redistributions by every strategy, without Python; the oracle is brute force: who holds each global index.
//
// Usage: mpiexec -n RANKS mpi_random [cases] [seed]

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "local_array.hpp"
#include "mpi_leaks.hpp"
#include "oracle.hpp"
#include "plan/registry.hpp"
#include "random_operation.hpp"

namespace {

using namespace dace_redist;

Spec random_spec(Random& random, const Indices& shape, Index ranks) {
  Spec spec;
  spec.shape = shape;
  spec.tiled = random.one_in(4);
  if (spec.tiled) {
    Index tiles = 1;
    for (Index n : shape) {
      spec.tile.push_back(random.between(std::max<Index>(1, ceil_div(n, 4)), n + 1));
      tiles *= ceil_div(n, spec.tile.back());
    }
    for (Index t = 0; t < tiles; ++t) spec.owners.push_back(random.between(0, ranks - 1));
    return spec;
  }
  for (bool more = !random.one_in(8); more; more = spec.grid.size() <= shape.size() && random.between(1, 3) > 1)
    spec.grid.push_back(random.between(1, ranks / product(spec.grid)));
  const Index axes = static_cast<Index>(spec.grid.size()), ndim = static_cast<Index>(shape.size());
  const Indices chosen = random.permutation(axes + ndim);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    spec.dims.push_back(chosen[i] < axes ? chosen[i] : -1);
    spec.block.push_back(random.one_of<Index>({0, 0, -1, -1, 1, 2, 3, shape[i], Index{1} << 62}));
  }
  for (Index g = 0; g < axes; ++g) {
    const bool named = std::find(spec.dims.begin(), spec.dims.end(), g) != spec.dims.end();
    spec.pins.push_back(named || random.one_in(2) ? -1 : random.between(0, spec.grid[static_cast<std::size_t>(g)] - 1));
  }
  if (random.one_in(2)) spec.ranks = random.permutation(ranks);
  if (!spec.ranks.empty()) spec.ranks.resize(static_cast<std::size_t>(product(spec.grid)));
  return spec;
}

struct Case {
  Index number = 0;
  MPI_Comm comm = MPI_COMM_NULL;  // null on ranks that take no part
  Spec source, target;
  Encoding index_map;
  Index element_bytes = 1, target_bytes = 1;  // of an element of each side
  ElementOperation operation;
  Index replicas = 1;  // of the source
  Options options;

  /// Writes an element of the source.
  void write_source(unsigned char* bytes, Index global) const {
    if (operation.is_copy()) return write_value(bytes, global, static_cast<std::size_t>(element_bytes));
    write_number(bytes, operation.source, number_of(global));
  }
  /// Writes an element of the target as it is before.
  void write_before(unsigned char* bytes) const {
    if (operation.is_copy()) return;
    write_number(bytes, operation.target, number_before);
  }
  /// Writes an element of the target as it must become.
  void write_after(unsigned char* bytes, Index global) const {
    if (operation.is_copy()) return write_source(bytes, global);
    write_number(bytes, operation.target, number_after(operation, global, replicas));
  }
};

/// Random axes and region for half of the cases, as an IndexMap takes them, and the target's shape.
Encoding random_map(Random& random, const Indices& shape, Indices& target_shape) {
  const Index ndim = static_cast<Index>(shape.size());
  target_shape = shape;
  if (random.one_in(2)) return {};
  const auto at = [](Index axis) { return static_cast<std::size_t>(axis); };
  Encoding map = random.permutation(ndim), source_offset, box;
  const bool whole = random.one_in(2);
  for (const Index n : shape) {
    source_offset.push_back(whole ? 0 : random.between(0, n));
    box.push_back(whole ? n : random.between(0, n - source_offset.back()));
  }
  Encoding target_offset;
  for (Index t = 0; t < ndim; ++t) {
    target_offset.push_back(whole ? 0 : random.between(0, 3));
    target_shape[at(t)] = target_offset.back() + box[at(map[at(t)])] + (whole ? 0 : random.between(0, 3));
  }
  if (whole) return map;
  for (const Encoding* part : {&source_offset, &target_offset, &box}) map.insert(map.end(), part->begin(), part->end());
  return map;
}

/// What a rank holds of the target: the global positions in the source that its elements come from, -1 for none.
Part origins(const Case& the, Part part) {
  if (the.index_map.empty()) return part;
  const std::size_t ndim = the.source.shape.size();
  for (Index& global : part.globals) {
    const Indices target = row_major_coordinates(global, the.target.shape);
    Indices source(ndim);
    bool moved = true;
    for (std::size_t t = 0; t < ndim; ++t) {
      const std::size_t s = static_cast<std::size_t>(the.index_map[t]);
      source[s] = target[t];
      if (the.index_map.size() == ndim) continue;
      const Index from = the.index_map[ndim + s], to = the.index_map[2 * ndim + t],
                  extent = the.index_map[3 * ndim + s];
      moved = moved && target[t] >= to && target[t] < to + extent;
      source[s] += from - to;
    }
    global = moved ? row_major(source, the.source.shape) : -1;
  }
  return part;
}

/// Of 1 to 5 dimensions; one in six may be of none, or have no elements.
Indices random_shape(Random& random, bool large) {
  if (large) return {random.between(150, 180), random.between(110, 130)};
  if (random.one_in(6)) {
    Indices shape(static_cast<std::size_t>(random.between(0, 3)));
    for (Index& n : shape) n = random.between(0, 3);
    return shape;
  }
  const std::size_t ndim = static_cast<std::size_t>(random.between(1, 5));
  const Index most = Indices{200, 24, 10, 6, 5}[ndim - 1];
  Indices shape(ndim);
  for (Index& n : shape) n = random.between(1, most);
  return shape;
}

Case random_case(Random& random, Index number, const std::vector<MPI_Comm>& comms, const Indices& sizes) {
  Case the;
  the.number = number;
  const std::size_t which =
      static_cast<std::size_t>(random.one_in(2) ? 0 : random.between(0, static_cast<Index>(comms.size()) - 1));
  the.comm = comms[which];
  const bool large = number % 16 == 15;
  const Indices shape = random_shape(random, large);
  Indices target_shape;
  the.index_map = random_map(random, shape, target_shape);
  the.source = random_spec(random, shape, sizes[which]);
  the.target = random_spec(random, target_shape, sizes[which]);
  the.operation = random_operation(random);
  the.element_bytes = the.target_bytes = random.one_of<Index>({1, 2, 4, 8, 16});
  if (!the.operation.is_copy()) {
    the.element_bytes = element_bytes_of(the.operation.source);
    the.target_bytes = element_bytes_of(the.operation.target);
    the.replicas = Distribution(the.source.encoding(), "source").replicas();
  }
  const bool tiny = product(shape) * the.element_bytes <= 1600;
  const Indices cuts = tiny ? Indices{1, 7, 64, 1000, Index{1} << 30} : Indices{512, 1000, 4096, Index{1} << 30};
  the.options.chunk_bytes = random.one_of(cuts);
  the.options.max_message_bytes = random.one_in(2) ? Index{1} << 30 : random.one_of(cuts);
  the.options.depth = random.between(1, 4);
  the.options.growth = random.one_of<double>({1.0, 1.5, 3.0});
  the.options.threads = random.between(0, 3);
  the.options.slot_bytes = random.one_of(tiny ? Indices{1, 64, 1000, 65536} : Indices{512, 4096, 65536});
  return the;
}

std::string describe(const Description& description) {
  const Options& options = description.options;
  const ElementOperation& operation = description.operation;
  return text(description.strategy, " of ", description.element_bytes, "-byte elements, ",
              element_name(operation.source), " to ", element_name(operation.target),
              ", alpha ", operation.alpha.real(), ", beta ", operation.beta.real(), ", op ",
              reduction_names[static_cast<std::size_t>(operation.reduction)], ", source ", tuple_text(description.source),
              " in local array ", tuple_text(description.source_local), ", target ", tuple_text(description.target),
              " in local array ", tuple_text(description.target_local), ", index map ",
              tuple_text(description.index_map), ", chunk_bytes ", options.chunk_bytes, ", depth ", options.depth,
              ", growth ", options.growth, ", threads ", options.threads, ", slot_bytes ", options.slot_bytes,
              ", max_message_bytes ", options.max_message_bytes);
}

class Checker {
 public:
  /// Runs one strategy on one case, several times, then with other local arrays.
  void check_strategy(const Case& the, const char* strategy) {
    const Index rank = the.comm == MPI_COMM_NULL ? 0 : comm_rank(the.comm);
    const Part from = the.comm == MPI_COMM_NULL ? Part{} : part_of(the.source, rank);
    const Part to = the.comm == MPI_COMM_NULL ? Part{} : origins(the, part_of(the.target, rank));
    Description description{
        "random", strategy, the.element_bytes, the.options,  the.source.encoding(), the.target.encoding(),
        {},       {},       the.index_map,     the.operation};
    std::unique_ptr<Plan> plan;
    for (std::uint64_t layout = 0; layout < 2; ++layout) {
      const std::uint64_t seed = static_cast<std::uint64_t>(the.number * 64 + rank) * 4 + layout;
      LocalArrayMemory source(Random(2 * seed), from, the.element_bytes),
          target(Random(2 * seed + 1), to, the.target_bytes);
      description.source_local = source.encoding();
      description.target_local = target.encoding();
      if (plan)
        plan->set_local_arrays(description.source_local, description.target_local);
      else
        plan = plan_maker(description)(description, the.comm);
      check_runs(the, *plan, source, target, text("case ", the.number, ": ", describe(description)));
    }
  }

  long passed = 0;

 private:
  void check_runs(const Case& the, Plan& plan, LocalArrayMemory& source, LocalArrayMemory& target,
                  const std::string& what) {
    const auto write_source = [&](unsigned char* bytes, Index global) { the.write_source(bytes, global); };
    const auto write_before = [&](unsigned char* bytes, Index) { the.write_before(bytes); };
    const auto write_after = [&](unsigned char* bytes, Index global) { the.write_after(bytes, global); };
    const std::vector<unsigned char> source_before = source.picture(0x5A, write_source),
                                     target_before = target.picture(0xA5, write_before),
                                     expected = target.picture(0xA5, write_after);
    for (int run = 0; run < 2; ++run) {
      source.set(source_before);
      target.set(target_before);
      plan.run(source.data(), target.data());
      if (!target.equals(expected)) throw Error(text("the target is wrong after run ", run, " of ", what));
      if (!source.equals(source_before)) throw Error(text("the source was written to by run ", run, " of ", what));
      ++passed;
    }
  }
};

void check_all(Index cases, Index seed) {
  MPI_Comm reversed = MPI_COMM_NULL, some = MPI_COMM_NULL;
  const int rank = comm_rank(MPI_COMM_WORLD), size = comm_size(MPI_COMM_WORLD);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 3 == 2 ? MPI_UNDEFINED : 0, rank, &some);
  Random random(static_cast<std::uint64_t>(seed));
  Checker checker;
  for (Index number = 0; number < cases; ++number) {
    const Case the = random_case(random, number, {MPI_COMM_WORLD, reversed, some}, {size, size, size - size / 3});
    const std::string node_ranks = std::to_string(random.between(0, 3));  // the same on all ranks
    for (const char* strategy :
         {"Datatype", "Pack", "Threaded", "Pipelined", "RMA", "Shared", "Hierarchical", "Aggregated"}) {
      setenv(node_ranks_variable, strategy == std::string("Shared") ? "0" : node_ranks.c_str(), 1);
      checker.check_strategy(the, strategy);
    }
  }
  MPI_Comm_free(&reversed);
  if (some != MPI_COMM_NULL) MPI_Comm_free(&some);
  long total = 0;
  MPI_Reduce(&checker.passed, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%ld checks passed\n", total);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  try {
    check_all(argc > 1 ? std::atoll(argv[1]) : 200, argc > 2 ? std::atoll(argv[2]) : 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", comm_rank(MPI_COMM_WORLD), error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
