// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A GPU as a Device, by the CUDA runtime. The driver's own library is loaded by the runtime where there is one, so
/// that this library can be loaded, and say what is missing, where there is none.

#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "device/cuda/tile_launch.hpp"
#include "device/device_objects.hpp"

namespace dace_redist {
namespace {

/// What CUDA says of an error, which it forgets by this unless the device is lost.
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

/// The tables of CopyTiles in the memory of the calling thread's device.
class DeviceTables {
 public:
  explicit DeviceTables(CopyTiles tiles) : tiles_(std::move(tiles)) {
    std::size_t nbytes = 0;
    const auto place = [&nbytes](const auto& list) {
      const std::size_t offset = nbytes;
      nbytes += (list.size() * sizeof(list[0]) + 255) / 256 * 256;
      return offset;
    };
    const std::size_t groups = place(tiles_.groups), dimensions = place(tiles_.dimensions),
                      places = place(tiles_.places), box_reads = place(tiles_.box_reads),
                      box_writes = place(tiles_.box_writes), group_of_tile = place(tiles_.group_of_tile);
    std::vector<char> bytes(nbytes);
    if (nbytes == 0) return;
    check(cudaMalloc(&memory_, nbytes));
    tables_.groups = take(tiles_.groups, bytes, groups);
    tables_.dimensions = take(tiles_.dimensions, bytes, dimensions);
    tables_.places = take(tiles_.places, bytes, places);
    tables_.box_reads = take(tiles_.box_reads, bytes, box_reads);
    tables_.box_writes = take(tiles_.box_writes, bytes, box_writes);
    tables_.group_of_tile = take(tiles_.group_of_tile, bytes, group_of_tile);
    upload(bytes);
  }
  DeviceTables(const DeviceTables&) = delete;
  DeviceTables& operator=(const DeviceTables&) = delete;
  ~DeviceTables() { cudaFree(memory_); }

  const CopyTiles& tiles() const { return tiles_; }  ///< without the tables
  const TileLaunch& tables() const { return tables_; }

 private:
  static void check(cudaError_t code) {
    if (code != cudaSuccess) throw Error(text("cannot prepare copies on a GPU: ", cuda_text(code)));
  }

  /// Moves a table to where it is to be in the device's memory. \return its address there.
  template <class T>
  const T* take(std::vector<T>& list, std::vector<char>& bytes, std::size_t offset) {
    if (!list.empty()) std::memcpy(bytes.data() + offset, list.data(), list.size() * sizeof(T));
    list = {};
    return reinterpret_cast<const T*>(static_cast<char*>(memory_) + offset);
  }

  /// In a stream of its own, which waits for no other work.
  void upload(const std::vector<char>& bytes) {
    cudaStream_t stream = nullptr;
    cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (code == cudaSuccess) {
      code = cudaMemcpyAsync(memory_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream);
      if (code == cudaSuccess) code = cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    }
    if (code == cudaSuccess) return;
    cudaFree(memory_);
    check(code);
  }

  CopyTiles tiles_;
  TileLaunch tables_;
  void* memory_ = nullptr;
};

class CudaCopyKernel : public CopyKernel {
 public:
  CudaCopyKernel(Device& device, const std::vector<DeviceCopy>& copies, const ElementStep& step)
      : device_(device), copies_(std::make_unique<Prepared>(copies, step)) {
    const CurrentDevice current(device_);
    copies_->prepare();
  }

  ~CudaCopyKernel() override {
    try {
      const CurrentDevice current(device_);
      copies_.reset();
    } catch (const Error&) {  // the device is lost, and its memory with it
    }
  }

  void launch(const std::vector<const char*>& sources, const std::vector<char*>& targets, Stream stream) override {
    const CurrentDevice current(device_);
    const DeviceTables& prepared = copies_->find(sources, targets);
    cudaGetLastError();  // forgets what went wrong in others' calls
    for (const TilePart& part : prepared.tiles().parts)
      launch_tiles(part, tile_launch(prepared.tiles(), part, prepared.tables(), sources, targets), stream);
    const cudaError_t code = cudaGetLastError();
    if (code != cudaSuccess) throw Error(text(device_.name(), " cannot start copies: ", cuda_text(code)));
  }

 private:
  using Prepared = PreparedCopies<DeviceTables>;

  Device& device_;
  std::unique_ptr<Prepared> copies_;
};

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

  void* allocate(std::int64_t nbytes) override {
    const CurrentDevice current(*this);
    void* memory = nullptr;
    const cudaError_t code = cudaMalloc(&memory, static_cast<std::size_t>(std::max<std::int64_t>(1, nbytes)));
    if (code == cudaSuccess) return memory;
    const std::string said = cuda_text(code);
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) throw Error(text(name_, " cannot allocate memory: ", said));
    throw Error(text(name_, " cannot allocate ", nbytes, " bytes, ", free, " of its ", total, " are free: ", said));
  }
  void free(void* memory) noexcept override { cudaFree(memory); }

  void pin(void* memory, std::int64_t nbytes) override {
    if (nbytes == 0) return;
    const CurrentDevice current(*this);
    const cudaError_t code = cudaHostRegister(memory, static_cast<std::size_t>(nbytes), cudaHostRegisterPortable);
    if (code != cudaSuccess)
      throw Error(text(name_, ": ", nbytes, " bytes of main memory cannot be page-locked: ", cuda_text(code)));
  }
  void unpin(void* memory) noexcept override {
    if (cudaHostUnregister(memory) != cudaSuccess) cudaGetLastError();
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

  Stream create_stream() override {
    const CurrentDevice current(*this);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
    return stream;
  }
  void destroy_stream(Stream stream) noexcept override { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }

  Event create_event() override {
    const CurrentDevice current(*this);
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
    return event;
  }
  void destroy_event(Event event) noexcept override { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }

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
    const cudaError_t code = cudaMemcpyAsync(target, source, static_cast<std::size_t>(nbytes), cudaMemcpyDefault,
                                             static_cast<cudaStream_t>(stream));
    if (code != cudaSuccess) throw Error(text(name_, " cannot copy ", nbytes, " bytes: ", cuda_text(code)));
  }

  std::unique_ptr<CopyKernel> copy_kernel(const std::vector<DeviceCopy>& copies, const ElementStep& step) override {
    return std::make_unique<CudaCopyKernel>(*this, copies, step);
  }

  bool name_memory(const void* memory, DeviceMemoryName& name) override {
    static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(name.handle));
    using AddressRange = CUresult(CUdeviceptr*, std::size_t*, CUdeviceptr);
    using PointerAttribute = CUresult(void*, CUpointer_attribute, CUdeviceptr);
    static const auto address_range = driver_function<AddressRange>("cuMemGetAddressRange");
    static const auto pointer_attribute = driver_function<PointerAttribute>("cuPointerGetAttribute");
    if (address_range == nullptr || pointer_attribute == nullptr || device_of(memory) != number_) return false;
    const CurrentDevice current(*this);
    const auto address = reinterpret_cast<CUdeviceptr>(memory);
    CUdeviceptr start = 0;
    std::size_t nbytes = 0;
    unsigned long long allocation = 0;
    unsigned int exportable = 0;
    if (address_range(&start, &nbytes, address) != CUDA_SUCCESS ||
        pointer_attribute(&allocation, CU_POINTER_ATTRIBUTE_BUFFER_ID, address) != CUDA_SUCCESS ||
        pointer_attribute(&exportable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) != CUDA_SUCCESS ||
        exportable == 0)
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
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto known = reached_.find(unique_id);
    if (known != reached_.end()) return known->second;
    return reached_[unique_id] = finds_peer(unique_id);
  }

  char* map(const DeviceMemoryName& name) override {
    if (name.process == static_cast<std::int64_t>(getpid()))
      throw Error(text(name_, ": a process cannot map memory of its own"));
    const std::lock_guard<std::mutex> guard(mutex_);
    Mapping& mapping = mappings_[key_of(name)];
    if (mapping.references == 0) {
      const CurrentDevice current(*this);
      cudaIpcMemHandle_t handle;
      std::memcpy(&handle, name.handle.data(), sizeof handle);
      void* start = nullptr;
      const cudaError_t code = cudaIpcOpenMemHandle(&start, handle, cudaIpcMemLazyEnablePeerAccess);
      if (code != cudaSuccess) {
        mappings_.erase(key_of(name));
        throw Error(text(name_, " cannot map memory of process ", name.process, ": ", cuda_text(code)));
      }
      mapping.start = static_cast<char*>(start);
    }
    ++mapping.references;
    return mapping.start;
  }

  void unmap(char* start) noexcept override {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto found = std::find_if(mappings_.begin(), mappings_.end(),
                                    [start](const auto& entry) { return entry.second.start == start; });
    if (found == mappings_.end() || --found->second.references > 0) return;
    mappings_.erase(found);
    int before = number_;
    cudaGetDevice(&before);
    if (before != number_) cudaSetDevice(number_);
    if (cudaIpcCloseMemHandle(start) != cudaSuccess) cudaGetLastError();
    restore(before);
  }

 private:
  struct Mapping {
    char* start = nullptr;
    std::int64_t references = 0;
  };
  using MappingKey = std::tuple<std::int64_t, std::uint64_t, std::array<char, 64>>;

  static MappingKey key_of(const DeviceMemoryName& name) { return {name.process, name.allocation, name.handle}; }

  static std::array<char, 16> id_of(const cudaDeviceProp& properties) {
    std::array<char, 16> id;
    static_assert(sizeof properties.uuid == sizeof id);
    std::memcpy(id.data(), &properties.uuid, sizeof id);
    return id;
  }

  bool finds_peer(const std::array<char, 16>& unique_id) const {
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

  /// \param what  the device was to do.
  void check(cudaError_t code, const char* what) const {
    if (code != cudaSuccess) throw Error(text(name_, " cannot ", what, ": ", cuda_text(code)));
  }

  int number_;
  std::string name_;
  std::array<char, 16> unique_id_{};
  std::mutex mutex_;  // of what follows
  std::map<std::array<char, 16>, bool> reached_;
  std::map<MappingKey, Mapping> mappings_;
};

void write_error(const std::string& said, char* error, std::size_t nbytes) {
  if (nbytes > 0) std::snprintf(error, nbytes, "%s", said.c_str());
}

}  // namespace
}  // namespace dace_redist

extern "C" {

/// Number of GPUs that this process sees; -1 if there is no driver or none of them, and why.
DR_API int dace_redist_cuda_device_count(char* error, std::size_t nbytes) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return count;
  dace_redist::write_error(code == cudaSuccess ? "no GPU" : dace_redist::cuda_text(code), error, nbytes);
  return -1;
}

/// The calling thread's GPU. Null if it cannot be used, and why.
/// \param known_to_mpi  whether MPI takes addresses in its memory; the same in each call.
DR_API dace_redist::Device* dace_redist_cuda_device(bool known_to_mpi, char* error, std::size_t nbytes) {
  // never destroyed: at the end of the process CUDA may be gone before them
  static auto& devices = *new std::map<int, std::unique_ptr<dace_redist::CudaDevice>>;
  static std::mutex mutex;
  try {
    int number = 0;
    const cudaError_t code = cudaGetDevice(&number);
    if (code != cudaSuccess) throw dace_redist::Error(dace_redist::cuda_text(code));
    const std::lock_guard<std::mutex> guard(mutex);
    auto& device = devices[number];
    if (!device) device = std::make_unique<dace_redist::CudaDevice>(number, known_to_mpi);
    return device.get();
  } catch (const std::exception& failure) {
    dace_redist::write_error(failure.what(), error, nbytes);
    return nullptr;
  }
}
}
