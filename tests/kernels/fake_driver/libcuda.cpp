// libcuda.cpp: a stand-in for NVIDIA's driver library, for tests of the PyCUDA path without a GPU.
//
// "Device" memory is host memory, and a "cubin" is a shared object built for our CPU back end. Only
// what PyCUDA needs for modules, memory, streams, events and launches is here; fake_driver.py adds a
// function that answers "not supported" for every other symbol PyCUDA links with.
// It must never stand before a real driver: cuInit refuses where one is installed.
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "launch.h"

#define API SIMT_API int
using DevicePointer = unsigned long long;

// The driver's numbers (cuda.h).
enum Result {
    kSuccess = 0,
    kInvalidValue = 1,
    kOutOfMemory = 2,
    kNoDevice = 100,
    kInvalidDevice = 101,
    kInvalidImage = 200,
    kInvalidContext = 201,
    kNotFound = 500,
    kLaunchFailed = 719,
    kNotSupported = 801
};
constexpr int kMaxDynamicShared = 227 * 1024, kFreeDynamicShared = 48 * 1024;

struct Function {
    const simt::KernelInfo* kernel;
    int max_dynamic_shared = kFreeDynamicShared;
};
struct Module {
    void* library;
    std::map<std::string, std::unique_ptr<Function>> functions;
};
struct Event {
    std::chrono::steady_clock::time_point time;
};

static char last_error[512];
static int primary_context;
static thread_local std::vector<void*> contexts;  // the stack of this thread

static int fail(Result code, const char* text) {
    snprintf(last_error, sizeof last_error, "%s", text);
    return code;
}

SIMT_API int simt_launch(const simt::LaunchRequest* request);

// ---- device and context -----------------------------------------------------------------------
API cuInit(unsigned) {
    return access("/dev/nvidiactl", F_OK) == 0 ? fail(kNoDevice, "a real driver is here")
                                               : kSuccess;
}
API cuDriverGetVersion(int* version) { return *version = 13000, kSuccess; }
API cuDeviceGetCount(int* count) { return *count = 1, kSuccess; }
API cuDeviceGet(int* device, int index) {
    return *device = index, index == 0 ? kSuccess : kInvalidDevice;
}
API cuDeviceGetName(char* name, int length, int) {
    return snprintf(name, static_cast<size_t>(length), "fake driver on the CPU"), kSuccess;
}
API cuDeviceComputeCapability(int* major, int* minor, int) {
    return *major = 8, *minor = 0, kSuccess;
}
API cuDeviceTotalMem_v2(size_t* bytes, int) {
    return *bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * 4096, kSuccess;
}
API cuMemGetInfo_v2(size_t* free, size_t* total) {
    *free = static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * 4096;
    return cuDeviceTotalMem_v2(total, 0);
}
API cuDeviceGetAttribute(int* value, int attribute, int) {
    static const std::map<int, int> known = {
        {1, 1024},  {2, 1024},  {3, 1024},  {4, 64},  {5, 2147483647},  {6, 65535},
        {7, 65535}, {8, 49152}, {9, 65536}, {10, 32}, {12, 65536},      {13, 1000000},
        {16, 1},    {39, 2048}, {75, 8},    {76, 0},  {81, 228 * 1024}, {97, kMaxDynamicShared},
        {100, 1} /* kernels reach host memory through the host's page tables */};
    const auto found = known.find(attribute);
    return *value = found == known.end() ? 0 : found->second, kSuccess;
}
API cuDeviceCanAccessPeer(int* can, int, int) { return *can = 0, kSuccess; }
API cuDevicePrimaryCtxRetain(void** context, int) { return *context = &primary_context, kSuccess; }
API cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
API cuCtxCreate_v4(void** context, void*, unsigned, int) {
    *context = new int;
    return contexts.push_back(*context), kSuccess;
}
API cuCtxDestroy_v2(void*) { return kSuccess; }
API cuCtxPushCurrent_v2(void* context) { return contexts.push_back(context), kSuccess; }
API cuCtxPopCurrent_v2(void** context) {
    if (contexts.empty()) return kInvalidContext;
    if (context) *context = contexts.back();
    return contexts.pop_back(), kSuccess;
}
API cuCtxGetDevice(int* device) {
    return *device = 0, contexts.empty() ? kInvalidContext : kSuccess;
}
API cuCtxAttach(void** context, unsigned) {
    if (contexts.empty()) return kInvalidContext;
    return *context = contexts.back(), kSuccess;
}
API cuCtxDetach(void*) { return kSuccess; }
API cuCtxSynchronize() { return contexts.empty() ? kInvalidContext : kSuccess; }
API cuCtxGetApiVersion(void*, unsigned* version) { return *version = 13000, kSuccess; }
API cuGetErrorString(int code, const char** text) {
    static const std::map<int, const char*> names = {{kSuccess, "no error"},
                                                     {kInvalidValue, "invalid argument"},
                                                     {kOutOfMemory, "out of memory"},
                                                     {kInvalidContext, "invalid device context"},
                                                     {kNotFound, "named symbol not found"},
                                                     {kNotSupported, "not in the fake driver"}};
    const auto found = names.find(code);
    *text = found != names.end() ? found->second : *last_error ? last_error : "unknown error";
    return kSuccess;
}

// ---- memory -------------------------------------------------------------------------------------
static void* host(DevicePointer p) { return reinterpret_cast<void*>(p); }
static int allocate(void** memory, size_t bytes, size_t alignment) {
    return posix_memalign(memory, alignment, bytes ? bytes : 1) ? kOutOfMemory : kSuccess;
}
API cuMemAlloc_v2(DevicePointer* p, size_t bytes) {
    return allocate(reinterpret_cast<void**>(p), bytes, 256);
}
API cuMemFree_v2(DevicePointer p) { return free(host(p)), kSuccess; }
API cuMemHostAlloc(void** p, size_t bytes, unsigned) { return allocate(p, bytes, 4096); }
API cuMemFreeHost(void* p) { return free(p), kSuccess; }
API cuMemHostGetDevicePointer_v2(DevicePointer* device, void* p, unsigned) {
    return *device = reinterpret_cast<DevicePointer>(p), kSuccess;
}
API cuMemHostRegister_v2(void*, size_t, unsigned) { return kSuccess; }
API cuMemHostUnregister(void*) { return kSuccess; }
API cuMemcpyHtoD_v2(DevicePointer to, const void* from, size_t n) {
    return memcpy(host(to), from, n), kSuccess;
}
API cuMemcpyDtoH_v2(void* to, DevicePointer from, size_t n) {
    return memcpy(to, host(from), n), kSuccess;
}
API cuMemcpyDtoD_v2(DevicePointer to, DevicePointer from, size_t n) {
    return memmove(host(to), host(from), n), kSuccess;
}
API cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t n, void*) {
    return cuMemcpyHtoD_v2(to, from, n);
}
API cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t n, void*) {
    return cuMemcpyDtoH_v2(to, from, n);
}
API cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t n, void*) {
    return cuMemcpyDtoD_v2(to, from, n);
}
API cuMemsetD8_v2(DevicePointer p, unsigned char value, size_t n) {
    return memset(host(p), value, n), kSuccess;
}
API cuMemsetD32_v2(DevicePointer p, unsigned value, size_t n) {
    return std::fill_n(static_cast<unsigned*>(host(p)), n, value), kSuccess;
}

// ---- streams and events: everything is done when the call returns -------------------------------
API cuStreamCreate(void** stream, unsigned) { return *stream = new int, kSuccess; }
API cuStreamDestroy_v2(void* stream) { return delete static_cast<int*>(stream), kSuccess; }
API cuStreamSynchronize(void*) { return kSuccess; }
API cuStreamQuery(void*) { return kSuccess; }
API cuStreamWaitEvent(void*, void*, unsigned) { return kSuccess; }
API cuEventCreate(void** event, unsigned) { return *event = new Event, kSuccess; }
API cuEventDestroy_v2(void* event) { return delete static_cast<Event*>(event), kSuccess; }
API cuEventRecord(void* event, void*) {
    return static_cast<Event*>(event)->time = std::chrono::steady_clock::now(), kSuccess;
}
API cuEventSynchronize(void*) { return kSuccess; }
API cuEventQuery(void*) { return kSuccess; }
API cuEventElapsedTime_v2(float* ms, void* begin, void* end) {
    const auto passed = static_cast<Event*>(end)->time - static_cast<Event*>(begin)->time;
    return *ms = std::chrono::duration<float, std::milli>(passed).count(), kSuccess;
}

// ---- modules --------------------------------------------------------------------------------------
API cuModuleLoadData(void** module, const void* image) {
    if (contexts.empty()) return kInvalidContext;
    const auto* elf = static_cast<const Elf64_Ehdr*>(image);
    constexpr int kCudaMachine = 190;
    if (memcmp(elf->e_ident, ELFMAG, SELFMAG) || elf->e_machine == kCudaMachine)
        return fail(kInvalidImage, "this image is for a GPU");
    const size_t bytes = elf->e_shoff + static_cast<size_t>(elf->e_shnum) * elf->e_shentsize;
    const int file = memfd_create("module", 0);
    if (write(file, image, bytes) != static_cast<ssize_t>(bytes)) return close(file), kInvalidImage;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    // The file stays open: dlopen knows libraries by path, and would take the next module, if it got
    // this file's number, for this one.
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return fail(kInvalidImage, dlerror());
    return *module = new Module{library, {}}, kSuccess;
}
API cuModuleLoadDataEx(void** module, const void* image, unsigned, void*, void**) {
    return cuModuleLoadData(module, image);
}
API cuModuleUnload(void*) { return kSuccess; }
API cuModuleGetFunction(void** function, void* handle, const char* name) {
    Module& module = *static_cast<Module*>(handle);
    const std::string symbol = std::string("simt_kernel_") + name;
    const auto* kernel =
        static_cast<const simt::KernelInfo*>(dlsym(module.library, symbol.c_str()));
    if (!kernel) return kNotFound;
    std::unique_ptr<Function>& known = module.functions[name];
    if (!known) known.reset(new Function{kernel});
    return *function = known.get(), kSuccess;
}
API cuFuncGetAttribute(int* value, int attribute, void* function) {
    constexpr int kMaxThreads = 0, kMaxDynamic = 8;
    *value = attribute == kMaxThreads   ? 1024
             : attribute == kMaxDynamic ? static_cast<Function*>(function)->max_dynamic_shared
                                        : 0;
    return kSuccess;
}
API cuFuncSetAttribute(void* function, int attribute, int value) {
    if (attribute != 8) return kSuccess;
    if (value > kMaxDynamicShared) return kInvalidValue;
    return static_cast<Function*>(function)->max_dynamic_shared = value, kSuccess;
}
API cuFuncSetBlockShape(void*, int x, int y, int z) {
    return x * y * z > 1024 ? kInvalidValue : kSuccess;
}
API cuFuncSetCacheConfig(void*, int) { return kSuccess; }

// ---- launches ---------------------------------------------------------------------------------------
// PyCUDA hands over one buffer with all arguments, each aligned to its size.
static bool unpack(const simt::KernelInfo& kernel, void** extra, std::vector<void*>& params) {
    char* buffer = nullptr;
    size_t bytes = 0, offset = 0;
    for (; extra && *extra; extra += 2) {
        if (*extra == reinterpret_cast<void*>(1)) buffer = static_cast<char*>(extra[1]);
        if (*extra == reinterpret_cast<void*>(2)) bytes = *static_cast<size_t*>(extra[1]);
    }
    for (int i = 0; i < kernel.num_params; ++i) {
        const size_t size = static_cast<size_t>(kernel.param_sizes[i]);
        offset = (offset + size - 1) / size * size;
        params.push_back(buffer + offset);
        offset += size;
    }
    if (offset == bytes) return true;
    snprintf(last_error, sizeof last_error, "%s: the arguments are %zu bytes, the kernel takes %zu",
             kernel.name, bytes, offset);
    return false;
}

API cuLaunchKernel(void* handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void*, void** params, void** extra) {
    if (contexts.empty()) return kInvalidContext;
    const Function& function = *static_cast<Function*>(handle);
    if (static_cast<int>(shared) > function.max_dynamic_shared ||
        !(gx && gy && gz && bx && by && bz) || static_cast<size_t>(bx) * by * bz > 1024)
        return kInvalidValue;
    std::vector<void*> unpacked;
    if (!params && !unpack(*function.kernel, extra, unpacked)) return kLaunchFailed;
    simt::Report reports[8];
    simt::ReportLog log{8, 0, reports};
    const int threads = static_cast<int>(std::thread::hardware_concurrency());
    const simt::LaunchRequest request{function.kernel, params ? params : unpacked.data(),
                                      {gx, gy, gz},    {bx, by, bz},
                                      threads,         &log};
    if (simt_launch(&request) == 0) return kSuccess;
    return fail(kLaunchFailed, "unspecified launch failure");
}
