// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Each protocol of the ranks of a node by itself, without MPI: two threads, sender and receiver, move a message
/// through nothing but the steps of one protocol. Then the handshake of a message that the receiver refuses.
///
/// Usage: test_protocols

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "copy/copy.hpp"
#include "copy/element_steps.hpp"
#include "copy/packing.hpp"
#include "copy/run_list.hpp"
#include "node/node_exchange.hpp"

// This program has no library that keeps events.
void dace_redist::trace::record(const Event& /*event*/) {}

namespace {

using namespace dace_redist;

int failures = 0;

void expect(bool holds, const char* what, const char* protocol) {
  if (holds) return;
  ++failures;
  std::printf("%s: %s\n", protocol, what);
}

constexpr Index element_bytes = sizeof(double);

/// A message: a matrix, to a matrix of longer rows, or to its transpose.
struct Shape {
  Index rows, columns, padding;
  bool transposed;

  Message message() const {
    StridedBlock block;
    block.ndim = 2;
    block.counts = {rows, columns};
    block.source_strides = {columns, 1};
    block.target_strides = {transposed ? 1 : columns + padding, transposed ? rows + padding : 1};
    return {1, block.count(), {block}};
  }
  Index source_count() const { return rows * columns; }
  Index target_count() const { return (rows + padding) * (columns + padding); }
};

const std::vector<Shape> shapes = {{3, 5, 2, false}, {64, 96, 0, true}, {300, 200, 7, false}, {517, 130, 3, true}};

/// An array of doubles, shared or not.
class Array {
 public:
  Array(Index count, bool shared)
      : count_(count),
        start_(shared ? allocate_shared(count * element_bytes) : allocate_private(count * element_bytes)) {}
  double* data() const { return static_cast<double*>(start_.get()); }
  char* bytes() const { return static_cast<char*>(start_.get()); }
  void fill(double first, double step) const {
    for (Index i = 0; i < count_; ++i) data()[i] = first + step * static_cast<double>(i);
  }

 private:
  struct Free {
    void operator()(void* array) const { free_shared(array); }
  };
  Index count_;
  std::unique_ptr<void, Free> start_;
};

/// Whether each element has arrived where the message says, and nothing else was written.
/// \param factor  by which all elements were multiplied on their way.
bool arrived(const Shape& shape, const Array& target, double first, double factor) {
  std::vector<double> wanted(static_cast<std::size_t>(shape.target_count()), -1.0);
  const Message message = shape.message();
  const StridedBlock& block = message.blocks[0];
  for (Index row = 0; row < shape.rows; ++row)
    for (Index column = 0; column < shape.columns; ++column)
      wanted[static_cast<std::size_t>(row * block.target_strides[0] + column * block.target_strides[1])] =
          factor * (first + static_cast<double>(row * shape.columns + column));
  return std::memcmp(wanted.data(), target.data(), wanted.size() * sizeof(double)) == 0;
}

/// Sender and receiver of one message; they share nothing but a ring and what the protocol tells there.
class Pair {
 public:
  /// \param factor  1: elements are copied.
  Pair(const Shape& shape, bool shared_source, bool shared_target, double factor = 1)
      : factor_(factor),
        shape_(shape),
        source_(shape.source_count(), shared_source),
        target_(shape.target_count(), shared_target) {
    ElementOperation operation;
    operation.source = operation.target = ElementType::float64;
    operation.alpha = factor;
    steps_.set(operation, element_bytes);
    rings_.allocate(1, piece * element_bytes, 2);
    for (Channel* channel : {&sender, &receiver}) {
      channel->set(shape.message(), channel == &sender, steps_);
      channel->ring = rings_.ring(0);
    }
    for (ExchangeState* exchange : {&sending, &receiving}) exchange->steps = &steps_;
    sending.source = source_.bytes();
    sending.source_location = finder_.find(source_.bytes());
    receiving.target = target_.bytes();
  }

  /// Moves one message: `send()` and `receive()` are called until the message is done, each in a thread of its own.
  bool move(Protocol protocol, const std::function<void()>& send, const std::function<void()>& receive) {
    source_.fill(static_cast<double>(sending.number), 1.0);
    target_.fill(-1.0, 0.0);
    const double first = static_cast<double>(sending.number);
    for (auto& [exchange, channel] : {std::pair{&sending, &sender}, std::pair{&receiving, &receiver}}) {
      ++exchange->number;
      exchange->open = 1;
      channel->begin();
      channel->protocol = protocol;
    }
    const auto repeat = [](const ExchangeState& exchange, const std::function<void()>& step) {
      for (; exchange.open > 0; std::this_thread::yield()) step();
    };
    std::thread other([&] { repeat(receiving, receive); });
    repeat(sending, send);
    other.join();
    return arrived(shape_, target_, first, factor_);
  }

  /// What the receiver's part of the handshake does for a pushed message.
  void advertise_target() { receiver.ring.state->target.location = finder_.find(target_.bytes()); }

  static constexpr Index piece = 1000;  // elements
  Channel sender{1, piece}, receiver{0, piece};
  ExchangeState sending, receiving;

 private:
  double factor_;
  ElementSteps steps_;
  Shape shape_;
  Array source_, target_;
  StagingRings rings_;
  SharedArrayFinder finder_{rings_.scratch()};
};

LevelChannels alone(Channel& channel) {
  LevelChannels level;
  level.only(channel);
  return level;
}

void check_staged(const Shape& shape, double factor, bool streams) {
  Pair pair(shape, false, false, factor);
  pair.receiving.stream_unpacked = streams;
  const auto send = [&] {
    pair.sender.streams = streams;
    if (!pair.sender.done && StagedProtocol::has_free_slot(pair.sender))
      StagedProtocol::send(pair.sending, alone(pair.sender));
  };
  const auto receive = [&] { StagedProtocol::receive(pair.receiving, pair.receiver); };
  for (int round = 0; round < 3; ++round) expect(pair.move(Protocol::staged, send, receive), "wrong", "staged");
}

void check_push(const Shape& shape, double factor, bool streams) {
  Pair pair(shape, false, true, factor);
  pair.sending.stream_pushed = streams;
  pair.advertise_target();
  expect(PushProtocol::connect(pair.sender), "the target cannot be mapped", "push");
  const auto send = [&] { PushProtocol::send(pair.sending, alone(pair.sender)); };
  const auto receive = [&] { PushProtocol::receive(pair.receiving, pair.receiver); };
  for (int round = 0; round < 3; ++round) expect(pair.move(Protocol::push, send, receive), "wrong", "push");
}

void check_pull(const Shape& shape, double factor, bool streams) {
  Pair pair(shape, true, false, factor);
  pair.receiving.stream_pulled = streams;
  PullProtocol::advertise(pair.sending, pair.sender, {});
  expect(PullProtocol::connect(pair.receiver), "the source cannot be mapped", "pull");
  const auto send = [&] { PullProtocol::complete(pair.sending, pair.sender); };
  const auto receive = [&] { PullProtocol::receive(pair.receiving, alone(pair.receiver)); };
  for (int round = 0; round < 3; ++round) expect(pair.move(Protocol::pull, send, receive), "wrong", "pull");
}

void check_read(const Shape& shape) {
  Pair pair(shape, false, false);
  ReadProtocol::advertise(pair.sending, pair.sender, {});
  if (!ReadProtocol::connect(pair.receiver)) {
    std::printf("read: not tested, the kernel does not let processes read each other's memory\n");
    return;
  }
  bool begun = false;
  const auto send = [&] { ReadProtocol::complete(pair.sending, pair.sender); };
  const auto receive = [&] {
    if (!begun) ReadProtocol::begin(pair.receiving, pair.receiver);
    begun = true;
    ReadProtocol::receive(pair.receiving, pair.receiver);
  };
  for (int round = 0; round < 3; ++round, begun = false)
    expect(pair.move(Protocol::read, send, receive), "wrong", "read");
}

/// A receiver that has refused once gets the message anew, staged.
void check_refusal() {
  Pair pair({40, 50, 0, false}, true, false);
  NodeMessages none;
  pair.receiving.number = pair.sending.number = 1;
  pair.receiving.open = pair.sending.open = 1;
  std::vector<Channel> sends;
  pair.sender.protocol = Protocol::pull;
  pair.sender.ring.state->decide(1, Protocol::pull);
  pair.sender.ring.state->source = {{true, {{getpid(), -1, 4096}, 1}, 0}, {}, 0, 0, 0, 0};  // cannot be opened
  expect(Handshake::accept(pair.receiving, none, pair.receiver), "nothing is noticed", "refusal");
  expect(pair.receiver.protocol == Protocol::undecided, "what cannot be mapped is pulled", "refusal");
  expect(!Handshake::accept(pair.receiving, none, pair.receiver), "it is refused again", "refusal");
  sends.push_back(std::move(pair.sender));
  expect(Handshake::check_receivers(pair.sending, sends), "the sender does not notice", "refusal");
  expect(sends[0].protocol == Protocol::staged, "it is not staged then", "refusal");
  expect(Handshake::accept(pair.receiving, none, pair.receiver), "the receiver does not notice", "refusal");
  expect(pair.receiver.protocol == Protocol::staged, "the receiver does not unpack", "refusal");
}

/// A sender tries both stores, takes those that took less time, and tries again when something has changed.
void check_stores() {
  StoreChoice choice;
  expect(choice.streams(), "non-temporal stores do not come first", "stores");
  choice.learn(2.0);
  expect(!choice.streams(), "ordinary stores are not tried", "stores");
  for (int exchange = 0; exchange < 10; ++exchange) {
    choice.learn(1.0);
    expect(!choice.streams(), "the faster stores are not kept", "stores");
  }
  choice.learn(3.0);
  expect(choice.streams(), "the others are not tried once these take longer", "stores");
  choice.learn(2.0);
  expect(choice.streams(), "the others are faster now, but not kept", "stores");
  int kept = 0;
  for (; choice.streams() && kept < 1000; ++kept) choice.learn(2.0);
  expect(kept > 100 && kept < 1000, "the others are tried too often, or never again", "stores");
}

}  // namespace

int main() {
  for (const Shape& shape : shapes) {
    for (const double factor : {1.0, -2.0})
      for (const bool streams : {false, true}) {
        check_staged(shape, factor, streams);
        check_push(shape, factor, streams);
        check_pull(shape, factor, streams);
      }
    check_read(shape);
  }
  check_refusal();
  check_stores();
  std::printf("%s\n", failures == 0 ? "all protocols are right" : "failed");
  return failures != 0;
}
