/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Files into memory of devices and back, for C and C++: docs/files.md of Outboard.
 *
 *     outboard_file *file = outboard_open("weights.bin", "r");
 *     ssize_t bytes = outboard_read(file, device_pointer, size);
 *     outboard_close(file);
 *
 * Through a server that has the file as well, the server reads and writes it. The same program works
 * without Outboard: the file is read here, and its bytes are copied by the driver library that the
 * process has. Link with -ldl where the C library is older than 2.34. One thread at a time may use
 * the position of a file; outboard_pread and outboard_pwrite do not.
 */
#ifndef OUTBOARD_IO_H
#define OUTBOARD_IO_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* An open file. */
typedef struct outboard_file {
    int descriptor;
    off_t position;
    uint64_t file;           /* its name in Outboard's driver library; 0 without that */
    const uintptr_t *table;  /* the library's functions for files */
    void *driver;
    int status;              /* the CUresult of the last failure of the device, else 0 */
} outboard_file;

/* What the device said when a call failed with EIO; 0 if it was the file that failed. */
static inline int outboard_status(const outboard_file *file) { return file->status; }

/* Opens a file: "r", "r+", "w" or "w+", as fopen does. NULL, and errno, if that fails. */
static inline outboard_file *outboard_open(const char *path, const char *mode) {
    int flags = !strcmp(mode, "r")    ? O_RDONLY
                : !strcmp(mode, "r+") ? O_RDWR
                : !strcmp(mode, "w")  ? O_WRONLY | O_CREAT | O_TRUNC
                : !strcmp(mode, "w+") ? O_RDWR | O_CREAT | O_TRUNC
                                      : -1;
    if (flags < 0) {
        errno = EINVAL;
        return NULL;
    }
    outboard_file *file = (outboard_file *)calloc(1, sizeof *file);
    if (!file) return NULL;
    file->descriptor = open(path, flags | O_CLOEXEC, 0666);
    file->driver = file->descriptor < 0 ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
    if (!file->driver) {
        int error = file->descriptor < 0 ? errno : ENODEV;
        if (file->descriptor >= 0) close(file->descriptor);
        free(file);
        errno = error;
        return NULL;
    }
    typedef int (*find_table)(const uintptr_t **, const char *);
    find_table find = (find_table)dlsym(file->driver, "cuGetExportTable");
    const uintptr_t *table = NULL;
    if (find && find(&table, "outboard-files01") == 0 && table && table[0] >= 8 * sizeof *table &&
        table[1] == 1) {
        typedef int (*open_file)(int, uint32_t, uint64_t *);
        if (((open_file)table[2])(file->descriptor, flags != O_RDONLY, &file->file) == 0) {
            file->table = table;
        }
    }
    return file;
}

/* For the functions below: copies in the context that has the memory, whichever is current. */
static inline int outboard_copy_(outboard_file *file, uint64_t device, void *host, size_t bytes, int to_device) {
    typedef int (*get_attribute)(void *, int, uint64_t);
    typedef int (*change_context)(void *);
    typedef int (*pop_context)(void **);
    typedef int (*copy_in)(uint64_t, const void *, size_t);
    typedef int (*copy_out)(void *, uint64_t, size_t);
    get_attribute get = (get_attribute)dlsym(file->driver, "cuPointerGetAttribute");
    change_context push = (change_context)dlsym(file->driver, "cuCtxPushCurrent_v2");
    pop_context pop = (pop_context)dlsym(file->driver, "cuCtxPopCurrent_v2");
    copy_in in = (copy_in)dlsym(file->driver, "cuMemcpyHtoD_v2");
    copy_out out = (copy_out)dlsym(file->driver, "cuMemcpyDtoH_v2");
    void *context = NULL;
    int status = get && push && pop && in && out ? get(&context, 1 /* CONTEXT */, device) : 3;
    if (status == 0) status = push(context);
    if (status != 0) return status;
    status = to_device ? in(device, host, bytes) : out(host, device, bytes);
    pop(&context);
    return status;
}

/* For the functions below: moves what one step moves; 0 at the end, -1 with errno. */
static inline ssize_t outboard_step_(outboard_file *file, uint64_t device, size_t bytes, off_t offset, int to_device) {
    file->status = 0;
    if (file->table) {
        typedef int (*move)(uint64_t, uint64_t, size_t, int64_t, ssize_t *);
        ssize_t moved = 0;
        file->status = ((move)file->table[to_device ? 4 : 5])(file->file, device, bytes, offset, &moved);
        if (file->status != 0 || moved < 0) {
            errno = file->status != 0 ? EIO : (int)-moved;
            return -1;
        }
        return moved;
    }
    size_t piece = bytes < (8u << 20) ? bytes : (8u << 20);
    void *host = malloc(piece ? piece : 1);
    if (!host) return -1;
    ssize_t moved = to_device ? pread(file->descriptor, host, piece, offset) : (ssize_t)piece;
    if (moved > 0) file->status = outboard_copy_(file, device, host, (size_t)moved, to_device);
    if (file->status == 0 && !to_device) moved = pwrite(file->descriptor, host, piece, offset);
    int error = file->status != 0 ? EIO : errno;
    free(host);
    errno = error;
    return file->status != 0 ? -1 : moved;
}

static inline ssize_t outboard_all_(outboard_file *file, uint64_t device, size_t bytes, off_t offset, int to_device) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t moved = outboard_step_(file, device + done, bytes - done, offset + (off_t)done, to_device);
        if (moved < 0) {
            if (errno == EINTR) continue;
            return done > 0 && file->status == 0 ? (ssize_t)done : -1;
        }
        if (moved == 0) break;
        done += (size_t)moved;
    }
    return (ssize_t)done;
}

/* Reads into memory of a device from a place of the file: how many bytes, fewer only at the file's
 * end; -1, and errno, if nothing could be read. The position stays. */
static inline ssize_t outboard_pread(outboard_file *file, const void *device, size_t bytes, off_t offset) {
    return outboard_all_(file, (uint64_t)(uintptr_t)device, bytes, offset, 1);
}

/* Writes memory of a device to a place of the file, likewise. */
static inline ssize_t outboard_pwrite(outboard_file *file, const void *device, size_t bytes, off_t offset) {
    return outboard_all_(file, (uint64_t)(uintptr_t)device, bytes, offset, 0);
}

/* As outboard_pread, from the position, which moves. */
static inline ssize_t outboard_read(outboard_file *file, const void *device, size_t bytes) {
    ssize_t moved = outboard_pread(file, device, bytes, file->position);
    if (moved > 0) file->position += moved;
    return moved;
}

/* As outboard_pwrite, to the position, which moves. */
static inline ssize_t outboard_write(outboard_file *file, const void *device, size_t bytes) {
    ssize_t moved = outboard_pwrite(file, device, bytes, file->position);
    if (moved > 0) file->position += moved;
    return moved;
}

/* Sets the position as lseek does; where it is then, or -1 and errno. */
static inline off_t outboard_seek(outboard_file *file, off_t offset, int whence) {
    off_t base = file->position;
    if (whence == SEEK_SET) base = 0;
    if (whence == SEEK_END) {
        struct stat facts;
        if (fstat(file->descriptor, &facts) != 0) return -1;
        base = facts.st_size;
    }
    if (base + offset < 0) {
        errno = EINVAL;
        return -1;
    }
    return file->position = base + offset;
}

/* Has what was written stored for good; 0, or -1 and errno. */
static inline int outboard_sync(outboard_file *file) {
    if (!file->table) return fsync(file->descriptor);
    typedef int (*by_name)(uint64_t);
    int error = ((by_name)file->table[6])(file->file);
    if (error != 0) errno = error;
    return error != 0 ? -1 : 0;
}

/* Bytes read by a server and by this process, and the same of written ones; zeros without
 * Outboard. */
static inline void outboard_moved(const outboard_file *file, uint64_t moved[4]) {
    memset(moved, 0, 4 * sizeof *moved);
    typedef int (*count)(uint64_t, uint64_t *);
    if (file->table) ((count)file->table[7])(file->file, moved);
}

/* Closes a file. */
static inline void outboard_close(outboard_file *file) {
    if (!file) return;
    typedef int (*by_name)(uint64_t);
    if (file->table) ((by_name)file->table[3])(file->file);
    close(file->descriptor);
    free(file);
}

#endif
