//! Compiles PTX to machine code and runs grids of threads on the CPU.
