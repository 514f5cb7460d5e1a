// MPI's calls must succeed.
#pragma once

#define MPI_CHECK(call)                                                              \
    do {                                                                             \
        int mpi_result = (call);                                                     \
        if (mpi_result != MPI_SUCCESS) {                                             \
            printf("%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, mpi_result);     \
            MPI_Abort(MPI_COMM_WORLD, 1);                                            \
        }                                                                            \
    } while (0)
