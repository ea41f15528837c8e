// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A GPU as a Device, by the CUDA runtime. The runtime loads the driver's library when it is called, so that this
/// library can be loaded, and report that a driver is missing, where there is none.

#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "device/device_objects.hpp"
#include "device/tile_kernels.hpp"

namespace dace_redist {
namespace {

/// CUDA's text of an error. Clears the error, unless the device is lost.
std::string cuda_text(cudaError_t code) {
  cudaGetLastError();
  return text(cudaGetErrorString(code), " (", cudaGetErrorName(code), ")");
}

/// The address of a function of the driver; null if there is none.
template <class Function>
Function* driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t code = cudaGetDriverEntryPointByVersion(name, &found, CUDART_VERSION, cudaEnableDefault, &result);
#else
  const cudaError_t code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  if (code != cudaSuccess) cudaGetLastError();
  return code == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Function*>(found) : nullptr;
}

constexpr int blocks_on_multiprocessor = 4;  // at least, which limits the registers of a thread to 64

template <class Words>
__global__ void __launch_bounds__(tile_threads, blocks_on_multiprocessor)
    copy_kernel(const __grid_constant__ TileLaunch launch) {
  copy_words(launch, blockIdx.x, threadIdx.x, Words(launch.operation));
}

template <class Words>
__global__ void __launch_bounds__(tile_threads, blocks_on_multiprocessor)
    transpose_kernel(const __grid_constant__ TileLaunch launch) {
  __shared__ TransposedTile<Words> tile;
  const Words words(launch.operation);
  read_rows(launch, blockIdx.x, threadIdx.x, words, tile);
  __syncthreads();
  write_columns(launch, blockIdx.x, threadIdx.x, words, tile);
}

class CudaDevice : public Device {
 public:
  CudaDevice(int number, bool known_to_mpi) : Device(known_to_mpi), number_(number) {
    cudaDeviceProp properties;
    const cudaError_t code = cudaGetDeviceProperties(&properties, number);
    if (code != cudaSuccess) throw Error(text("cannot use GPU ", number, ": ", cuda_text(code)));
    name_ = text("GPU ", number, " (", properties.name, ")");
    unique_id_ = id_of(properties);
  }

  std::string name() const override { return name_; }
  int number() const override { return number_; }
  std::array<char, 16> unique_id() const override { return unique_id_; }

  int make_current() override {
    int before = 0;
    check(cudaGetDevice(&before), "tell which GPU is in use");
    if (before != number_) check(cudaSetDevice(number_), "be used");
    return before;
  }
  void restore(int number) noexcept override {
    if (number != number_) cudaSetDevice(number);
  }

  DeviceHandle allocate(std::int64_t nbytes) override {
    const CurrentDevice current(*this);
    void* memory = nullptr;
    const cudaError_t code = cudaMalloc(&memory, static_cast<std::size_t>(std::max<std::int64_t>(1, nbytes)));
    if (code == cudaSuccess) return {memory, cudaFree};
    const std::string reason = cuda_text(code);
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw Error(text(name_, " cannot allocate ", nbytes, " bytes, ", free, " of its ", total, " are free: ", reason));
  }

  DeviceHandle pin(void* memory, std::int64_t nbytes) override {
    if (nbytes == 0) return {};
    const CurrentDevice current(*this);
    check(cudaHostRegister(memory, static_cast<std::size_t>(nbytes), cudaHostRegisterPortable),
          text("page-lock ", nbytes, " bytes of main memory"));
    return {memory, [](void* pinned) {
              if (cudaHostUnregister(pinned) != cudaSuccess) cudaGetLastError();
            }};
  }

  int device_of(const void* address) const override {
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
      cudaGetLastError();
      return -1;
    }
    const bool device = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    return device ? attributes.device : -1;
  }

  DeviceHandle make_stream() override {
    const CurrentDevice current(*this);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
    return {stream, cudaStreamDestroy};
  }

  DeviceHandle make_event() override {
    const CurrentDevice current(*this);
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
    return {event, cudaEventDestroy};
  }

  void record(Event event, Stream stream) override {
    const CurrentDevice current(*this);
    check(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)), "record an event");
  }
  void wait(Stream stream, Event event) override {
    const CurrentDevice current(*this);
    check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0),
          "let a stream wait for an event");
  }
  bool completed(Event event) override {
    const cudaError_t code = cudaEventQuery(static_cast<cudaEvent_t>(event));
    if (code != cudaErrorNotReady) check(code, "finish its work");
    if (code == cudaErrorNotReady) cudaGetLastError();
    return code == cudaSuccess;
  }
  void synchronize(Stream stream) override {
    const CurrentDevice current(*this);
    check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "finish its work");
  }

  void copy(void* target, const void* source, std::int64_t nbytes, Stream stream) override {
    if (nbytes == 0) return;
    const CurrentDevice current(*this);
    check(cudaMemcpyAsync(target, source, static_cast<std::size_t>(nbytes), cudaMemcpyDefault,
                          static_cast<cudaStream_t>(stream)),
          "copy memory");
  }

  DeviceHandle upload(const void* bytes, std::int64_t nbytes) override {
    const DeviceHandle memory = allocate(nbytes), stream = make_stream();
    copy(memory.get(), bytes, nbytes, stream.get());
    synchronize(stream.get());  // a stream of its own waits for no other work
    return memory;
  }

  void run(const TileLaunch& launch, Stream stream) override {
    const CurrentDevice current(*this);
    cudaGetLastError();  // forgets errors of calls by others
    visit_tile_words(launch.operation, [&](auto tag) {
      using Words = typename decltype(tag)::type;
      const auto kernel = launch.transposed ? transpose_kernel<Words> : copy_kernel<Words>;
      kernel<<<launch.tiles, tile_threads, 0, static_cast<cudaStream_t>(stream)>>>(launch);
    });
    check(cudaGetLastError(), "start copies");
  }

  bool name_memory(const void* memory, DeviceMemoryName& name) override {
    static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(name.handle));
    using PointerAttribute = CUresult(void*, CUpointer_attribute, CUdeviceptr);
    static const auto pointer_attribute = driver_function<PointerAttribute>("cuPointerGetAttribute");
    if (pointer_attribute == nullptr || device_of(memory) != number_) return false;
    const CurrentDevice current(*this);
    const auto address = reinterpret_cast<CUdeviceptr>(memory);
    const auto ask = [&](CUpointer_attribute attribute, auto& answer) {
      return pointer_attribute(&answer, attribute, address) == CUDA_SUCCESS;
    };
    CUdeviceptr start = 0;
    unsigned long long allocation = 0;
    unsigned int exportable = 0;
    if (!ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, start) || !ask(CU_POINTER_ATTRIBUTE_BUFFER_ID, allocation) ||
        !ask(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, exportable) || exportable == 0)
      return false;
    cudaIpcMemHandle_t handle;
    if (cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(start)) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    std::memcpy(name.handle.data(), &handle, sizeof handle);
    name.allocation = allocation;
    name.offset = static_cast<std::int64_t>(address - start);
    name.process = static_cast<std::int64_t>(getpid());
    return true;
  }

  bool reaches(const std::array<char, 16>& unique_id) override {
    if (unique_id == unique_id_) return true;
    int count = 0, peer = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
    for (int other = 0; other < count; ++other) {
      cudaDeviceProp properties;
      if (cudaGetDeviceProperties(&properties, other) == cudaSuccess && id_of(properties) == unique_id)
        return cudaDeviceCanAccessPeer(&peer, number_, other) == cudaSuccess && peer != 0;
    }
    cudaGetLastError();
    return false;
  }

  // CUDA counts the references of a mapping itself.
  DeviceHandle map(const DeviceMemoryName& name) override {
    if (name.process == static_cast<std::int64_t>(getpid()))
      throw Error(text(name_, ": a process cannot map memory of its own"));
    const CurrentDevice current(*this);
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, name.handle.data(), sizeof handle);
    void* start = nullptr;
    check(cudaIpcOpenMemHandle(&start, handle, cudaIpcMemLazyEnablePeerAccess),
          text("map memory of process ", name.process));
    return {start, [this](void* mapped) { unmap(mapped); }};
  }

 private:
  static std::array<char, 16> id_of(const cudaDeviceProp& properties) {
    std::array<char, 16> id;
    static_assert(sizeof properties.uuid == sizeof id);
    std::memcpy(id.data(), &properties.uuid, sizeof id);
    return id;
  }

  void unmap(void* start) noexcept {
    int before = number_;
    cudaGetDevice(&before);
    if (before != number_) cudaSetDevice(number_);
    if (cudaIpcCloseMemHandle(start) != cudaSuccess) cudaGetLastError();
    restore(before);
  }

  /// \param action  the device was to carry out. \throws Error unless it did.
  template <class Action>
  void check(cudaError_t code, const Action& action) const {
    if (code != cudaSuccess) throw Error(text(name_, " cannot ", action, ": ", cuda_text(code)));
  }

  int number_;
  std::string name_;
  std::array<char, 16> unique_id_{};
};

/// The calling thread's GPU.
/// \throws Error if there is no driver, or no GPU that can be used.
Device& device_of_thread(bool known_to_mpi) {
  // never destroyed: at the end of the process CUDA may be gone before them
  static auto& devices = *new std::map<int, std::unique_ptr<CudaDevice>>;
  static std::mutex mutex;
  int count = 0, number = 0;
  cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count == 0) throw Error("no GPU can be used here: no GPU");
  if (code == cudaSuccess) code = cudaGetDevice(&number);
  if (code != cudaSuccess) throw Error(text("no GPU can be used here: ", cuda_text(code)));
  const std::lock_guard<std::mutex> guard(mutex);
  auto& device = devices[number];
  if (!device) device = std::make_unique<CudaDevice>(number, known_to_mpi);
  return *device;
}

}  // namespace
}  // namespace dace_redist

/// The calling thread's GPU. Null if it cannot be used, and why.
/// \param known_to_mpi  whether MPI takes addresses in its memory; equal in all calls.
extern "C" DR_API dace_redist::Device* dace_redist_device(bool known_to_mpi, char* error, std::size_t nbytes) {
  try {
    return &dace_redist::device_of_thread(known_to_mpi);
  } catch (const std::exception& failure) {
    if (nbytes > 0) std::snprintf(error, nbytes, "%s", failure.what());
    return nullptr;
  }
}
