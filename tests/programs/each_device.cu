// Works on all devices at once, a thread for each, until the file FOLDER/end exists. Each round
// adds a byte to FOLDER/rounds.DEVICE, so that a test sees which devices go on; while
// FOLDER/rest.DEVICE exists, that device has nothing to do. Says "running" once each has done a
// round.
//
//   each_device FOLDER [MEBIBYTES [fork]] holds that much memory of each device; a child that does
//   nothing lives as long as FOLDER
#include "rounds.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>
#include <string>

static std::string folder;

static std::string path(const char* name) { return folder + "/" + name; }

static std::string path(const char* name, int device) { return path(name) + "." + std::to_string(device); }

static void work(int device, size_t held) {
    CHECK(cudaSetDevice(device));
    std::vector<unsigned> small(1000), large(200000);
    DeviceArray<char> kept(held);
    kept.zero();
    DeviceArray<unsigned> data(large.size());
    int rounds = open(path("rounds", device).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    EXPECT(rounds >= 0);
    for (unsigned round = 0; !exists(path("end").c_str()); pause_briefly()) {
        if (exists(path("rest", device).c_str())) continue;
        go_round(data.get(), small, round);
        go_round(data.get(), large, round++);
        EXPECT(write(rounds, ".", 1) == 1);
    }
    for (char byte : kept.download()) EXPECT(byte == 0);
    close(rounds);
}

// The test waits for the end of the output: the child has none.
static void idle_in_a_child() {
    if (fork() != 0) return;
    for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(stream);
    while (exists(folder.c_str())) pause_briefly();
    _exit(0);
}

int main(int argc, char** argv) {
    EXPECT(argc > 1);
    folder = argv[1];
    size_t held = (argc > 2 ? strtoull(argv[2], nullptr, 10) : 1) << 20;
    int devices;
    CHECK(cudaGetDeviceCount(&devices));
    std::vector<std::thread> threads;
    for (int device = 0; device < devices; device++) threads.emplace_back(work, device, held);
    for (int device = 0; device < devices; device++) {
        struct stat rounds = {};
        while (stat(path("rounds", device).c_str(), &rounds) != 0 || rounds.st_size == 0) pause_briefly();
    }
    if (argc > 3 && strcmp(argv[3], "fork") == 0) idle_in_a_child();
    printf("running\n");
    fflush(stdout);
    for (std::thread& thread : threads) thread.join();
    printf("%d devices: done\n", devices);
}
