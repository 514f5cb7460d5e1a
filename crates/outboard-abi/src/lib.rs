//! C types of cuda.h: names, sizes, values. No logic.
