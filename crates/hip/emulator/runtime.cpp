// A library with the ABI of HIP's runtime and hiprtc (rocblas.cpp, rocsolver.cpp, rccl.cpp: of those libraries), as far
// as the engine calls them, whose GPU is the emulated multiprocessor: "gfx90a" with wavefronts of 64 lanes. Work is
// done when it is asked for, so streams have nothing to wait for; a recorded step is a list of work.
#include "multiprocessor.h"
#include "runtime.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {
std::recursive_mutex device;
typedef std::lock_guard<std::recursive_mutex> Turn;

// Runs a kernel; its name goes to the file that RUSHLIGHT_EMULATOR_RAN names, once.
int launch(const EmulatedKernel& kernel, Three grid, Three block, unsigned shared, void** arguments) {
    Turn turn(device);
    static const char* file = getenv("RUSHLIGHT_EMULATOR_RAN");
    static std::set<std::string> noted;
    if (file && noted.insert(kernel.name).second) {
        if (FILE* to = fopen(file, "a")) fprintf(to, "%s\n", kernel.name.c_str()), fclose(to);
    }
    return run_kernel(kernel, grid, block, shared, arguments) ? SUCCESS : LAUNCH_FAILED;
}

struct Launch {
    const EmulatedKernel* kernel;
    Three grid, block;
    unsigned shared;
    // The arguments' values, aligned as any may want to be.
    std::vector<std::max_align_t> values;
    std::vector<size_t> places;

    void keep(void** arguments) {
        size_t at = 0;
        places.clear();
        for (int i = 0; i < kernel->count; i++) places.push_back(at), at += (kernel->sizes[i] + 63) / 64 * (64 / sizeof(std::max_align_t));
        values.resize(at);
        for (int i = 0; i < kernel->count; i++) memcpy(&values[places[i]], arguments[i], kernel->sizes[i]);
    }
    int run() {
        std::vector<void*> arguments;
        for (size_t place : places) arguments.push_back(&values[place]);
        return launch(*kernel, grid, block, shared, arguments.data());
    }
};

// A piece of a recorded step: a launch, or other work.
struct Node { std::shared_ptr<Launch> launch; std::function<int()> work; };
struct Graph { std::vector<std::shared_ptr<Node>> nodes; };
// One piece of work at a time; kernels of all streams take turns, too.
struct Stream { Graph* recording = nullptr; std::recursive_mutex turn; };
Stream no_stream;
Stream& of(void* stream) { return stream ? *(Stream*)stream : no_stream; }
// `graph`: the step that it was recorded in, which streams that wait for it join.
struct Event { std::chrono::steady_clock::time_point at; bool recorded = false; Graph* graph = nullptr; };
std::set<Stream*> streams;
// Steps that are being recorded.
std::set<Graph*> captures;
// A graph with launches of its own, by the graph's nodes.
struct Exec { std::vector<std::pair<const Node*, Node>> nodes; };
struct Program { std::string source, name, log; std::vector<char> image; };
struct Module { void* library; std::map<std::string, std::unique_ptr<EmulatedKernel>> kernels; };

struct Allocation { size_t bytes; int file; };
std::map<void*, Allocation> allocations;
// Other processes' allocations that are open here.
std::map<void*, size_t> opened;
std::atomic<size_t> in_use{0};
constexpr size_t MEMORY = (size_t)8 << 30;

Graph* recording(void* stream) { return of(stream).recording; }
}  // namespace

int submit(void* stream, std::function<int()> work) {
    Turn turn(of(stream).turn);
    if (Graph* graph = recording(stream)) {
        graph->nodes.push_back(std::make_shared<Node>(Node{nullptr, work}));
        return SUCCESS;
    }
    return work();
}

namespace {
int copy(void* to, const void* from, size_t bytes, void* stream) {
    return submit(stream, [=] { memmove(to, from, bytes); return SUCCESS; });
}
}  // namespace

// ---- devices and memory -----------------------------------------------------------------------------------------------------------

API int hipInit(unsigned) { return SUCCESS; }
API int hipDriverGetVersion(int* v) { return *v = 60300000, SUCCESS; }
API int hipRuntimeGetVersion(int* v) { return *v = 60300000, SUCCESS; }
API int hipGetDeviceCount(int* n) { return *n = 1, SUCCESS; }
API int hipDeviceGetName(char* name, int size, int) { return snprintf(name, size, "Emulated CDNA 2"), SUCCESS; }
API int hipDeviceGetAttribute(int* value, int which, int) {
    switch (which) {
        case 63: return *value = 4, SUCCESS;
        case 74: return *value = 65536, SUCCESS;
        case 87: return *value = 64, SUCCESS;
        default: return INVALID;
    }
}
API int hipDeviceTotalMem(size_t* bytes, int) { return *bytes = MEMORY, SUCCESS; }
API int hipGetDevicePropertiesR0600(void* to, int) {
    memset(to, 0, 1472);
    strcpy((char*)to, "Emulated CDNA 2");
    strcpy((char*)to + 1160, "gfx90a:sramecc+:xnack-");
    return SUCCESS;
}
API int hipSetDevice(int n) { return n == 0 ? SUCCESS : 101; }
API int hipGetDevice(int* n) { return *n = 0, SUCCESS; }
// Processes share the GPU, or each has its own (RUSHLIGHT_EMULATED_GPU=own), as launchers arrange it.
API int hipDeviceGetPCIBusId(char* to, int size, int) {
    const char* whose = getenv("RUSHLIGHT_EMULATED_GPU");
    static const unsigned own = std::random_device()();
    return snprintf(to, size, "%08x:00:00.0", whose && strcmp(whose, "own") == 0 ? own : 0), SUCCESS;
}
API int hipDeviceSynchronize() { Turn turn(device); return SUCCESS; }
API int hipMemGetInfo(size_t* available, size_t* total) { return *available = MEMORY - in_use, *total = MEMORY, SUCCESS; }
API int hipDrvGetErrorString(int code, const char** text) {
    return *text = code == LAUNCH_FAILED ? "unspecified launch failure" : code == OUT_OF_MEMORY ? "out of memory" : "error", SUCCESS;
}
API int hipMalloc(void** to, size_t bytes) {
    Turn turn(device);
    if (bytes > MEMORY - in_use) return OUT_OF_MEMORY;
    // A file without a name, so that other processes can open it.
    int file = memfd_create("emulated", MFD_CLOEXEC);
    bool sized = file >= 0 && ftruncate(file, bytes) == 0;
    void* made = sized ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0) : MAP_FAILED;
    if (made == MAP_FAILED) return file >= 0 && close(file), OUT_OF_MEMORY;
    // Fresh memory holds no zeros that a kernel could rely on; whole gigabytes are for those who ask for more than
    // there is.
    memset(made, 0xff, std::min(bytes, (size_t)64 << 20));
    allocations[made] = {bytes, file}, in_use += bytes;
    return *to = made, SUCCESS;
}
API int hipFree(void* at) {
    Turn turn(device);
    auto found = allocations.find(at);
    if (found == allocations.end()) return INVALID;
    munmap(at, found->second.bytes);
    close(found->second.file);
    in_use -= found->second.bytes;
    allocations.erase(found);
    return SUCCESS;
}
struct IpcHandle { char path[56]; size_t bytes; };
API int hipIpcGetMemHandle(IpcHandle* to, void* at) {
    Turn turn(device);
    auto found = allocations.find(at);
    if (found == allocations.end()) return INVALID;
    memset(to, 0, sizeof *to);
    snprintf(to->path, sizeof to->path, "/proc/%d/fd/%d", (int)getpid(), found->second.file);
    return to->bytes = found->second.bytes, SUCCESS;
}
API int hipIpcOpenMemHandle(void** to, IpcHandle from, unsigned) {
    Turn turn(device);
    from.path[sizeof from.path - 1] = 0;
    int file = open(from.path, O_RDWR | O_CLOEXEC);
    void* made = file >= 0 ? mmap(nullptr, from.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (file >= 0) close(file);
    if (made == MAP_FAILED) return INVALID;
    opened[made] = from.bytes;
    return *to = made, SUCCESS;
}
API int hipIpcCloseMemHandle(void* at) {
    Turn turn(device);
    auto found = opened.find(at);
    if (found == opened.end()) return INVALID;
    munmap(at, found->second);
    return opened.erase(found), SUCCESS;
}
API int hipHostMalloc(void** to, size_t bytes, unsigned) { return *to = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), *to ? SUCCESS : OUT_OF_MEMORY; }
API int hipHostFree(void* at) { return free(at), SUCCESS; }
API int hipHostGetDevicePointer(void** to, void* at, unsigned) { return *to = at, SUCCESS; }
API int hipMemcpyHtoDAsync(void* to, const void* from, size_t bytes, void* stream) { return copy(to, from, bytes, stream); }
API int hipMemcpyDtoHAsync(void* to, const void* from, size_t bytes, void* stream) { return copy(to, from, bytes, stream); }
API int hipMemcpyDtoDAsync(void* to, const void* from, size_t bytes, void* stream) { return copy(to, from, bytes, stream); }
API int hipMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, void* stream) { return copy(to, from, bytes, stream); }

// ---- streams, events, recorded steps ----------------------------------------------------------------------------------------------

API int hipStreamCreateWithPriority(void** to, unsigned, int) {
    Turn turn(device);
    Stream* made = new Stream;
    return streams.insert(made), *to = made, SUCCESS;
}
API int hipStreamDestroy(void* stream) {
    Turn turn(device);
    return streams.erase((Stream*)stream), delete (Stream*)stream, SUCCESS;
}
API int hipStreamSynchronize(void* stream) { Turn turn(of(stream).turn); return SUCCESS; }
API int hipStreamQuery(void* stream) {
    std::unique_lock<std::recursive_mutex> turn(of(stream).turn, std::try_to_lock);
    return turn ? SUCCESS : NOT_READY;
}
API int hipStreamWaitEvent(void* stream, void* event, unsigned) {
    Turn turn(of(stream).turn);
    Turn all(device);
    Graph* graph = ((Event*)event)->graph;
    if (!captures.count(graph)) return SUCCESS;
    if (of(stream).recording && of(stream).recording != graph) return INVALID;
    return of(stream).recording = graph, SUCCESS;
}
API int hipEventCreateWithFlags(void** to, unsigned) { return *to = new Event, SUCCESS; }
API int hipEventDestroy(void* event) { return delete (Event*)event, SUCCESS; }
API int hipEventRecord(void* event, void* stream) {
    Turn turn(of(stream).turn);
    Event& e = *(Event*)event;
    e.graph = recording(stream);
    if (!e.graph) e.at = std::chrono::steady_clock::now(), e.recorded = true;
    return SUCCESS;
}
API int hipEventQuery(void*) { return SUCCESS; }
API int hipEventSynchronize(void*) { return SUCCESS; }
API int hipEventElapsedTime(float* to, void* begin, void* end) {
    Turn turn(device);
    if (!((Event*)begin)->recorded || !((Event*)end)->recorded) return 400;
    *to = std::chrono::duration<float, std::milli>(((Event*)end)->at - ((Event*)begin)->at).count();
    return SUCCESS;
}
API int hipThreadExchangeStreamCaptureMode(int* mode) {
    static thread_local int now = 0;
    std::swap(now, *mode);
    return SUCCESS;
}
API int hipStreamBeginCapture(void* stream, int) {
    Turn turn(of(stream).turn);
    if (recording(stream)) return INVALID;
    Turn all(device);
    captures.insert(of(stream).recording = new Graph);
    return SUCCESS;
}
API int hipStreamEndCapture(void* stream, void** to) {
    Turn turn(of(stream).turn);
    if (!recording(stream)) return INVALID;
    Graph* graph = recording(stream);
    Turn all(device);
    captures.erase(graph);
    for (Stream* other : streams) if (other->recording == graph) other->recording = nullptr;
    return *to = graph, SUCCESS;
}
API int hipGraphInstantiateWithFlags(void** to, void* graph, uint64_t) {
    Turn turn(device);
    Exec* exec = new Exec;
    for (auto& node : ((Graph*)graph)->nodes) {
        Node own = *node;
        if (own.launch) own.launch = std::make_shared<Launch>(*own.launch);
        exec->nodes.push_back({node.get(), own});
    }
    return *to = exec, SUCCESS;
}
API int hipGraphGetRootNodes(void* graph, void** nodes, size_t* count) {
    Turn turn(device);
    auto& all = ((Graph*)graph)->nodes;
    if (nodes && *count && !all.empty()) nodes[0] = all[0].get();
    return *count = !all.empty(), SUCCESS;
}
API int hipGraphLaunch(void* exec, void* stream) {
    return submit(stream, [=] {
        for (auto& entry : ((Exec*)exec)->nodes) {
            int code = entry.second.launch ? entry.second.launch->run() : entry.second.work();
            if (code) return code;
        }
        return (int)SUCCESS;
    });
}
struct NodeParameters { unsigned block[3]; void** extra; void* function; unsigned grid[3]; void** arguments; unsigned shared; };
API int hipGraphExecKernelNodeSetParams(void* exec, void* node, const NodeParameters* p) {
    Turn turn(device);
    for (auto& entry : ((Exec*)exec)->nodes) {
        if (entry.first != node || !entry.second.launch) continue;
        Launch& launch = *entry.second.launch;
        launch.kernel = (const EmulatedKernel*)p->function;
        launch.grid = {p->grid[0], p->grid[1], p->grid[2]}, launch.block = {p->block[0], p->block[1], p->block[2]};
        launch.shared = p->shared;
        launch.keep(p->arguments);
        return SUCCESS;
    }
    return INVALID;
}
API int hipGraphDestroy(void* graph) { Turn turn(device); return delete (Graph*)graph, SUCCESS; }
API int hipGraphExecDestroy(void* exec) { Turn turn(device); return delete (Exec*)exec, SUCCESS; }

// ---- modules and launches ---------------------------------------------------------------------------------------------------------

API int hipModuleLoadData(void** to, const void* image) {
    const Elf64_Ehdr* header = (const Elf64_Ehdr*)image;
    if (memcmp(image, ELFMAG, SELFMAG)) return 200;
    size_t size = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
    // A name of its own: the loader takes a name that it knows for the library it has.
    char path[] = "/tmp/rushlight-emulated-XXXXXX";
    int file = mkstemp(path);
    bool written = file >= 0 && write(file, image, size) == (ssize_t)size;
    if (file >= 0) close(file);
    void* library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!library) fprintf(stderr, "emulated multiprocessor: %s\n", written ? dlerror() : "no room for a kernel in /tmp");
    unlink(path);
    if (!library) return 200;
    ((void (*)(Machine*))dlsym(library, "emulator_attach"))(&emulated);
    return *to = new Module{library, {}}, SUCCESS;
}
API int hipModuleGetFunction(void** to, void* module, const char* name) {
    Turn turn(device);
    Module& m = *(Module*)module;
    auto run = (void (*)(void**))dlsym(m.library, (std::string("run_") + name).c_str());
    auto sizes = (int (*)(unsigned long*))dlsym(m.library, (std::string("sizes_") + name).c_str());
    if (!run || !sizes) return NOT_FOUND;
    auto& kernel = m.kernels[name];
    if (!kernel) {
        kernel.reset(new EmulatedKernel{name, run, ((char* (*)())dlsym(m.library, "emulator_shared"))(), {}, 0});
        kernel->count = sizes(kernel->sizes);
    }
    return *to = kernel.get(), SUCCESS;
}
API int hipFuncSetAttribute(void*, int, int) { return SUCCESS; }
API int hipModuleLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* stream,
                              void** arguments, void**) {
    Turn turn(of(stream).turn);
    if (shared > 65536 || bx * by * bz > 1024 || bx * by * bz == 0) return INVALID;
    const EmulatedKernel* kernel = (const EmulatedKernel*)function;
    Three grid = {gx, gy, gz}, block = {bx, by, bz};
    if (Graph* graph = recording(stream)) {
        auto launch = std::make_shared<Launch>(Launch{kernel, grid, block, shared, {}, {}});
        launch->keep(arguments);
        graph->nodes.push_back(std::make_shared<Node>(Node{launch, nullptr}));
        return SUCCESS;
    }
    return launch(*kernel, grid, block, shared, arguments);
}

// ---- the compiler -----------------------------------------------------------------------------------------------------------------

namespace {
// A text whose entry points can be called by name, and whose dynamic shared memory is the module's.
std::string emulated_text(const std::string& source) {
    std::string out = "#include \"lanes.h\"\n", entry;
    const std::string begin = "extern \"C\" __global__", shared = "extern __shared__";
    for (size_t at = 0; at < source.size();) {
        size_t end = source.find('\n', at);
        if (end == std::string::npos) end = source.size();
        std::string line = source.substr(at, end - at);
        at = end + 1;
        if (line.compare(0, begin.size(), begin) == 0) {
            size_t close = line.rfind(") {"), open = line.rfind('(', close), space = line.rfind(' ', open);
            entry = line.substr(space + 1, open - space - 1);
        }
        size_t found = line.find(shared);
        if (found != std::string::npos) line.replace(found, shared.size(), "extern");
        out += line + "\n";
        if (line == "}" && !entry.empty()) out += "EMULATOR_ENTRY(" + entry + ")\n", entry.clear();
    }
    return out;
}
std::string contents(const std::string& path) {
    std::string out;
    if (FILE* file = fopen(path.c_str(), "rb")) {
        char part[4096];
        for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) out.append(part, n);
        fclose(file);
    }
    return out;
}
}  // namespace

// The number of this emulator stands for the compiler's: kernels that were compiled for another are not used.
API int hiprtcVersion(int* major, int* minor) { return *major = 6, *minor = EMULATOR_VERSION, 0; }
API int hiprtcCreateProgram(void** to, const char* source, const char* name, int, const char**, const char**) {
    return *to = new Program{source, name, "", {}}, 0;
}
API int hiprtcCompileProgram(void* program, int, const char**) {
    Program& p = *(Program*)program;
    char directory[] = "/tmp/rushlight-emulated-XXXXXX";
    if (!mkdtemp(directory)) return 6;
    std::string base = directory, text = base + "/kernel.cpp", object = base + "/kernel.so", log = base + "/log";
    FILE* file = fopen(text.c_str(), "wb");
    std::string source = emulated_text(p.source);
    bool written = file && fwrite(source.data(), 1, source.size(), file) == source.size();
    if (file) fclose(file);
    // Names are the kernels' own, though the C library may have functions of the same name (random).
    const char* flags = getenv("RUSHLIGHT_EMULATOR_FLAGS");
    std::string command = "c++ -std=c++17 -O1 -w -fPIC -shared -fvisibility=hidden -fno-exceptions -fno-rtti -fno-strict-aliasing -fno-semantic-interposition -Wl,-Bsymbolic -I'" EMULATOR_DIRECTORY "' ";
    command += std::string(flags ? flags : "") + " -o '" + object + "' '" + text + "' -lm 2>'" + log + "'";
    int code = written ? system(command.c_str()) : 1;
    p.log = contents(log);
    std::string image = contents(object);
    p.image.assign(image.begin(), image.end());
    if (const char* keep = getenv("RUSHLIGHT_EMULATOR_KEEP")) fprintf(stderr, "%s%s: %s\n", keep, p.name.c_str(), text.c_str());
    else {
        for (auto& path : {text, object, log}) unlink(path.c_str());
        rmdir(directory);
    }
    return code == 0 && !p.image.empty() ? 0 : 6;
}
API int hiprtcGetProgramLogSize(void* program, size_t* size) { return *size = ((Program*)program)->log.size() + 1, 0; }
API int hiprtcGetProgramLog(void* program, char* to) { return memcpy(to, ((Program*)program)->log.c_str(), ((Program*)program)->log.size() + 1), 0; }
API int hiprtcGetCodeSize(void* program, size_t* size) { return *size = ((Program*)program)->image.size(), 0; }
API int hiprtcGetCode(void* program, char* to) { return memcpy(to, ((Program*)program)->image.data(), ((Program*)program)->image.size()), 0; }
API int hiprtcDestroyProgram(void** program) { return delete (Program*)*program, *program = nullptr, 0; }
