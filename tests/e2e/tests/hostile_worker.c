// A driver library that takes its worker over: linked against the software device, which does the
// work, it begins once the worker is in its sandbox and a program runs, tries what the sandbox is
// there to stop, and says on standard error what passed. What it needs is in the folder that
// OUTBOARD_TEST_VICTIM names: `secret`, a file of the server's user, `listener`, a socket there, and
// `begin`, a file that appears when it is time. OUTBOARD_TEST_PORT is a port of this machine.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

static const char *victim;
static char secret[512], listener[512], begins[512], beside[512];
static int port;

static void say(const char *attempt, long result) {
    char line[256];
    int error = errno;
    int length = result < 0
        ? snprintf(line, sizeof line, "hostile: %s is stopped by %s\n", attempt, strerror(error))
        : snprintf(line, sizeof line, "hostile: %s PASSED\n", attempt);
    if (write(2, line, length) < 0) abort();
}

static int in_sandbox(void) {
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY);
    if (fd < 0) return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length < 0) return 0;
    text[length] = 0;
    return strstr(text, "Seccomp:\t2") != NULL;
}

// The client's own connection.
static int connection_of_the_client(void) {
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_in peer;
        socklen_t size = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.sin_family == AF_INET)
            return fd;
    }
    return -1;
}

static long unix_socket(int kind) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s", listener);
    int fd = socket(AF_UNIX, kind, 0);
    if (fd < 0) return -1;
    long result = connect(fd, (struct sockaddr *)&to, sizeof to);
    close(fd);
    return result;
}

static long fast_open(int fd) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    connect(fd, &none, sizeof none);
    return sendto(fd, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&to, sizeof to);
}

static void *attack(void *nothing) {
    while (!in_sandbox() || access(begins, F_OK) != 0) usleep(2000);
    char other[32];
    int one = 1;
    pid_t parent = getppid();
    cpu_set_t processors;
    struct sched_param usual = {0};
    say("open", open(secret, O_RDONLY));
    say("chmod", chmod(secret, 0666));
    say("chown", chown(secret, getuid(), getgid()));
    say("utimensat", utimensat(AT_FDCWD, secret, NULL, 0));
    say("setxattr", setxattr(secret, "user.outboard", "x", 1, 0));
    say("removexattr", removexattr(secret, "user.outboard"));
    say("truncate", truncate(secret, 0));
    say("unlink", unlink(secret));
    say("symbolic link", symlink("/", beside));
    say("fchmodat2", syscall(452, AT_FDCWD, secret, 0666, 0));
    say("inotify", inotify_init1(0));
    say("unix stream", unix_socket(SOCK_STREAM));
    say("unix datagram", unix_socket(SOCK_DGRAM));
    say("unix packets", unix_socket(SOCK_SEQPACKET));
    int pair[2];
    say("datagram pair", socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    say("internet socket", socket(AF_INET, SOCK_STREAM, 0));
    say("kernel socket", socket(AF_NETLINK, SOCK_RAW, 0));
    say("priority of all", setpriority(PRIO_USER, 0, getpriority(PRIO_PROCESS, 0)));
    say("priority of the parent", setpriority(PRIO_PROCESS, parent, 0));
    sched_getaffinity(parent, sizeof processors, &processors);
    say("processors of the parent", sched_setaffinity(parent, sizeof processors, &processors));
    say("turns of the parent", sched_setscheduler(parent, SCHED_OTHER, &usual));
    say("signal", kill(parent, 0));
    say("limits of the parent", prlimit(parent, RLIMIT_NOFILE, NULL, NULL));
    snprintf(other, sizeof other, "/proc/%d/maps", parent);
    say("memory of the parent", open(other, O_RDONLY));
    say("group", setpgid(0, 0));
    say("typing", ioctl(2, TIOCSTI, "x"));
    say("program", execl("/bin/true", "true", NULL));
    say("process", syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    say("ring", syscall(SYS_io_uring_setup, 1, NULL));
    say("key", syscall(SYS_keyctl, 0, 0, 0, 0, 0));
    say("name space", syscall(SYS_unshare, 0));
    say("root", chroot("/"));
    say("folder", chdir("/"));
    say("unknown call", syscall(1000));
    int client = connection_of_the_client();
    if (client >= 0) {
        say("protocol", setsockopt(client, IPPROTO_TCP, TCP_ULP, "tls", 3));
        say("repair", setsockopt(client, IPPROTO_TCP, TCP_REPAIR, &one, sizeof one));
        say("listening", listen(client, 1));
        say("fast open", fast_open(client));
    }
    // What drivers need goes on.
    int gone = 0;
    if (sched_getaffinity(gettid(), sizeof processors, &processors) != 0
        || sched_setaffinity(gettid(), sizeof processors, &processors) != 0
        || pthread_setaffinity_np(pthread_self(), sizeof processors, &processors) != 0)
        gone = 1;
    char line[64];
    const char *how = gone ? "STOPPED" : "go on";
    int length = snprintf(line, sizeof line, "hostile: done, own threads %s\n", how);
    if (write(2, line, length) < 0) abort();
    return nothing;
}

__attribute__((constructor)) static void begin(void) {
    static char file[512];
    victim = getenv("OUTBOARD_TEST_VICTIM");
    if (!victim) return;
    snprintf(secret, sizeof secret, "%s/secret", victim);
    snprintf(listener, sizeof listener, "%s/listener", victim);
    snprintf(beside, sizeof beside, "%s/beside", victim);
    snprintf(begins, sizeof begins, "%s/begin", victim);
    snprintf(file, sizeof file, "%s", getenv("OUTBOARD_TEST_PORT") ?: "0");
    port = atoi(file);
    pthread_t thread;
    pthread_create(&thread, NULL, attack, NULL);
}
