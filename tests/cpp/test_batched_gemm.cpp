// Plans of einsums as batched products of matrices: their steps, executed by plain loops, give what the definition of
// an einsum gives, for random expressions, extents and strides.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

#include "contraction/plan.hpp"
#include "core/error.hpp"

namespace {

using namespace dace_redist;

std::mt19937 generator(20240607);

Index random_number(Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(generator); }

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

/// An array whose elements are small integers, so that sums are exact; memory between its elements holds other numbers.
struct Tensor {
  std::string indices;
  std::vector<Index> extents, strides;
  std::vector<double> memory;
  Index first = 0;  // position of the element of index 0

  Index position(const std::map<char, Index>& at) const {
    Index found = first;
    for (std::size_t d = 0; d < indices.size(); ++d) found += at.at(indices[d]) * strides[d];
    return found;
  }
};

Tensor random_tensor(const std::string& indices, const std::map<char, Index>& extents) {
  Tensor tensor;
  tensor.indices = indices;
  for (const char index : indices) tensor.extents.push_back(extents.at(index));
  tensor.strides.resize(indices.size());
  std::vector<std::size_t> order(indices.size());
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
  if (random_number(0, 1) == 0) std::shuffle(order.begin(), order.end(), generator);
  Index distance = random_number(0, 9) == 0 ? 2 : 1;
  for (std::size_t d = order.size(); d-- > 0;) {
    const Index extent = tensor.extents[order[d]];
    const bool backwards = random_number(0, 19) == 0 && extent > 0;
    tensor.strides[order[d]] = backwards ? -distance : distance;
    if (backwards) tensor.first += (extent - 1) * distance;
    distance *= std::max<Index>(1, extent + (random_number(0, 4) == 0 ? random_number(1, 2) : 0));
  }
  for (Index i = 0; i < distance; ++i) tensor.memory.push_back(static_cast<double>(random_number(-3, 3)));
  return tensor;
}

/// Calls `visit` for all values of some indices.
template <class Visit>
void for_all(const std::map<char, Index>& extents, const Visit& visit) {
  std::map<char, Index> at;
  for (const auto& [index, extent] : extents) {
    if (extent == 0) return;
    at[index] = 0;
  }
  for (;;) {
    visit(at);
    auto digit = at.begin();
    for (; digit != at.end() && ++digit->second == extents.at(digit->first); ++digit) digit->second = 0;
    if (digit == at.end()) return;
  }
}

/// Executes a plan. Memory that nothing was written to holds numbers that no result has.
class Execution {
 public:
  Execution(const ContractionPlan& plan, std::vector<Tensor>& operands, Tensor& result)
      : plan_(plan),
        operands_(operands),
        result_(result),
        kept_(static_cast<std::size_t>(plan.kept_count), 1e9),
        scratch_(static_cast<std::size_t>(plan.scratch_count), 1e9),
        ones_(static_cast<std::size_t>(plan.ones_count), 1.0) {}

  void run(double alpha, double beta) {
    for (const auto& variant : plan_.steps) {
      const auto& step = std::get<PairStep>(variant);
      const auto& gemm = std::get<GemmPlan>(step.method);
      const bool last = step.places[C].kind == TensorPlace::result;
      for (const Operand tensor : {A, B, C})
        if (gemm.copied[tensor] && (tensor != C || (last && beta != 0))) copy(step, gemm, tensor, true);
      multiply(step, gemm, !last ? 1 : plan_.is_empty_sum ? 0 : alpha, last ? beta : 0);
      if (gemm.copied[C]) copy(step, gemm, C, false);
    }
  }

 private:
  /// An element, checked to lie inside of its array.
  static double& at(std::vector<double>& memory, Index offset) {
    require(offset >= 0 && offset < static_cast<Index>(memory.size()), "a step leaves its array");
    return memory[static_cast<std::size_t>(offset)];
  }

  double& at(const TensorPlace& place, Index offset) {
    if (place.kind == TensorPlace::ones) return at(ones_, offset);
    if (place.kind == TensorPlace::kept) return at(kept_, place.at + offset);
    Tensor& tensor = place.kind == TensorPlace::result ? result_ : operands_[static_cast<std::size_t>(place.at)];
    return at(tensor.memory, tensor.first + offset);
  }

  void copy(const PairStep& step, const GemmPlan& gemm, Operand tensor, bool to_buffer) {
    const StridedBlock block = gemm.block(tensor, TileWalk(gemm.dimensions, gemm.tiles));
    std::map<char, Index> extents;
    for (int d = 0; d < block.ndim; ++d) extents[static_cast<char>(d)] = block.counts[static_cast<std::size_t>(d)];
    for_all(extents, [&](const std::map<char, Index>& index) {
      Index in_array = 0, in_buffer = gemm.buffer_at[tensor];
      for (const auto& [d, i] : index) {
        in_array += i * block.source_strides[static_cast<std::size_t>(d)];
        in_buffer += i * block.target_strides[static_cast<std::size_t>(d)];
      }
      double &element = at(step.places[tensor], in_array), &copied = at(scratch_, in_buffer);
      (to_buffer ? copied : element) = to_buffer ? element : copied;
    });
  }

  static Index offset(const BatchedGemm::Matrix& matrix, Index batch, Index row, Index column) {
    return batch * matrix.step + (matrix.transposed ? column * matrix.leading + row : row * matrix.leading + column);
  }

  void multiply(const PairStep& step, const GemmPlan& plan, double alpha, double beta) {
    const BatchedGemm gemm = batched_gemm(plan);
    require(!gemm.c.transposed, "a product with a transposed result");
    require(gemm.a.leading >= (gemm.a.transposed ? gemm.m : gemm.k), "a leading dimension that is too short");
    require(gemm.b.leading >= (gemm.b.transposed ? gemm.k : gemm.n), "a leading dimension that is too short");
    require(gemm.c.leading >= gemm.n, "a leading dimension that is too short");
    require(gemm.a.step >= 0 && gemm.b.step >= 0 && gemm.c.step >= 0, "a step that goes backwards");
    require(gemm.m > 0 && gemm.n > 0 && gemm.k > 0 && gemm.batches > 0, "an empty product");
    const auto element = [&](const BatchedGemm::Matrix& matrix, Index at_offset) -> double& {
      if (plan.copied[matrix.tensor]) return at(scratch_, plan.buffer_at[matrix.tensor] + at_offset);
      return at(step.places[matrix.tensor], at_offset);
    };
    for (Index batch = 0; batch < gemm.batches; ++batch)
      for (Index i = 0; i < gemm.m; ++i)
        for (Index j = 0; j < gemm.n; ++j) {
          double sum = 0;
          for (Index l = 0; l < gemm.k; ++l)
            sum += element(gemm.a, offset(gemm.a, batch, i, l)) * element(gemm.b, offset(gemm.b, batch, l, j));
          double& target = element(gemm.c, offset(gemm.c, batch, i, j));
          target = alpha * sum + (beta != 0 ? beta * target : 0);
        }
  }

  const ContractionPlan& plan_;
  std::vector<Tensor>& operands_;
  Tensor& result_;
  std::vector<double> kept_, scratch_, ones_;
};

std::string random_indices(Index most, const std::string& letters, bool repeated) {
  std::string found;
  for (Index left = random_number(0, most); left > 0; --left) {
    const char index = letters[static_cast<std::size_t>(random_number(0, static_cast<Index>(letters.size()) - 1))];
    if (repeated || found.find(index) == std::string::npos) found += index;
  }
  return found;
}

struct Problem {
  std::string expression;
  Path path;
  std::map<char, Index> extents;
};

Problem random_problem() {
  const std::string letters = std::string("ijklmn").substr(0, static_cast<std::size_t>(random_number(1, 6)));
  Problem problem;
  std::string all;
  const Index count = random_number(1, 4);
  for (Index i = 0; i < count; ++i) {
    const std::string indices = random_indices(4, letters, random_number(0, 5) == 0);
    problem.expression += (i > 0 ? "," : "") + indices;
    all += indices;
  }
  std::string result;
  for (const char index : random_indices(4, letters, false))
    if (all.find(index) != std::string::npos) result += index;
  problem.expression += "->" + result;
  const bool may_be_empty = random_number(0, 9) == 0;
  for (const char index : all) problem.extents[index] = random_number(may_be_empty ? 0 : 1, 4);
  if (random_number(0, 1) == 0)
    for (Index left = count; left > 1; --left) {
      const auto first = static_cast<std::size_t>(random_number(0, left - 1));
      const auto second =
          (first + static_cast<std::size_t>(random_number(1, left - 1))) % static_cast<std::size_t>(left);
      problem.path.push_back({first, second});
    }
  return problem;
}

ContractionPlan plan_of(const Problem& problem, const std::vector<Tensor>& operands, const Tensor& result) {
  std::vector<Index> words;
  const auto add = [&](const Tensor& tensor) {
    words.insert(words.end(), tensor.extents.begin(), tensor.extents.end());
    words.insert(words.end(), tensor.strides.begin(), tensor.strides.end());
  };
  for (const Tensor& tensor : operands) add(tensor);
  add(result);
  PlannedEinsum einsum(problem.expression, problem.path, {sizeof(double), true, true, false});
  einsum.update(words.data(), words.size());
  return einsum.plan();
}

void check(const Problem& problem) {
  const Einsum einsum(problem.expression);
  std::vector<Tensor> operands;
  for (const std::string& indices : einsum.operands) operands.push_back(random_tensor(indices, problem.extents));
  Tensor result = random_tensor(einsum.result, problem.extents), expected = result;
  const auto alpha = static_cast<double>(random_number(-2, 2)), beta = static_cast<double>(random_number(-1, 1));
  std::map<char, Index> of_result;
  for (const char index : einsum.result) of_result[index] = problem.extents.at(index);
  for_all(of_result, [&](const std::map<char, Index>& at) {
    expected.memory[static_cast<std::size_t>(expected.position(at))] *= beta;
  });
  for_all(problem.extents, [&](const std::map<char, Index>& at) {
    double product = alpha;
    for (const Tensor& tensor : operands) product *= tensor.memory[static_cast<std::size_t>(tensor.position(at))];
    expected.memory[static_cast<std::size_t>(expected.position(at))] += product;
  });
  const ContractionPlan plan = plan_of(problem, operands, result);
  Execution(plan, operands, result).run(alpha, beta);
  for (std::size_t i = 0; i < expected.memory.size(); ++i)
    require(result.memory[i] == expected.memory[i],
            text(problem.expression, ": element ", i, " is ", result.memory[i], ", not ", expected.memory[i]));
}

/// Number of products of an expression of arrays in C order, all extents different from
/// `extent` on, and of elements that they copy.
std::pair<std::size_t, Index> cost(const std::string& expression, Index extent = 2) {
  Problem problem{expression, {}, {}};
  const Einsum einsum(expression);
  for (const std::string& indices : einsum.operands)
    for (const char index : indices)
      if (problem.extents.emplace(index, extent).second) ++extent;
  const auto in_order = [&](const std::string& indices) {
    std::vector<Index> extents;
    for (const char index : indices) extents.push_back(problem.extents.at(index));
    Layout layout = contiguous_layout(indices, extents);
    return Tensor{indices, extents, layout.strides, {}, 0};
  };
  std::vector<Tensor> operands;
  for (const std::string& indices : einsum.operands) operands.push_back(in_order(indices));
  const ContractionPlan plan = plan_of(problem, operands, in_order(einsum.result));
  Index copied = 0;
  for (const auto& step : plan.steps) {
    const auto& gemm = std::get<GemmPlan>(std::get<PairStep>(step).method);
    for (const Operand tensor : {A, B, C}) copied += gemm.copied[tensor] ? gemm.size(tensor) : 0;
  }
  return {plan.steps.size(), copied};
}

void check_costs() {
  for (const char* expression :
       {"ij,jk->ik", "ji,jk->ik", "ij,kj->ik", "ij,jk->ki", "bij,bjk->bik", "ij,j->i", "i,j->ij", "ij->i", "ij->",
        "ijk,kl->ijl", "ijk,jl->ilk", "ijk,il->ljk", "bij,bkj->bik"})
    require(cost(expression) == std::pair<std::size_t, Index>{1, 0},
            text(expression, " is one product without copies, but the plan has ", cost(expression).first, " steps"));
  require(cost("ij->ji", 200) == std::pair<std::size_t, Index>{1, 200 * 201}, "a transposition copies once");
}

}  // namespace

int main(int count, char** words) {
  check_costs();
  const long cases = count > 1 ? std::atol(words[1]) : 20000;
  for (long i = 0; i < cases; ++i) check(random_problem());
  std::printf("%ld random einsums\n", cases);
}
