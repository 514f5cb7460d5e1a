// Two libraries. One is for LD_PRELOAD: it has the program's main run while the loader loads the
// other one, or while it unloads it, as LOADER_LOCK says: "constructor" or "destructor". The loader
// holds its lock meanwhile. Whatever main waits for must come without that lock.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <errno.h>
#include <string>

#ifdef LOADED

extern "C" void loader_lock_main(const char* where);

__attribute__((constructor)) static void begin() {
    loader_lock_main("constructor");
}

__attribute__((destructor)) static void end() {
    loader_lock_main("destructor");
}

#else

using Main = int(int, char**, char**);

static Main* of_program;
static int count;
static char** words;
static char** settings;
static bool has_run;
static int result;

extern "C" void loader_lock_main(const char* where) {
    const char* wanted = getenv("LOADER_LOCK");
    if (wanted && strcmp(where, wanted) == 0 && !has_run) {
        has_run = true;
        result = of_program(count, words, settings);
    }
}

static int within(int argc, char** argv, char** environment) {
    count = argc;
    words = argv;
    settings = environment;
    Dl_info own;
    dladdr(reinterpret_cast<void*>(loader_lock_main), &own);
    void* loaded = dlopen((std::string(own.dli_fname) + "_loaded").c_str(), RTLD_NOW);
    if (!loaded) {
        fprintf(stderr, "%s\n", dlerror());
        return 99;
    }
    dlclose(loaded);
    return has_run ? result : 98;
}

extern "C" int __libc_start_main(Main* main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld_fini)(), void* stack) {
    using Start = int(Main*, int, char**, void (*)(), void (*)(), void (*)(), void*);
    Start* start = reinterpret_cast<Start*>(dlsym(RTLD_NEXT, "__libc_start_main"));
    // The command that starts the program is not meant.
    bool is_program = strcmp(program_invocation_short_name, "outboard") != 0;
    of_program = main;
    return start(is_program ? within : main, argc, argv, init, fini, rtld_fini, stack);
}

#endif
